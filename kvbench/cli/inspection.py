"""What ``kvbench trace inspect`` prints."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from kvbench.cli.tables import Printer, add_remarks, number, percent, rejections, simple_table
from kvbench.results.rates import RATES
from kvbench.units import format_duration_ns


def print_inspection(report: dict[str, Any]) -> None:
    """Print the report of :func:`kvbench.results.inspect.inspect_trace`."""
    out = Printer()
    facts = report["trace"]
    out.print(f"[bold]{escape(facts['name'])}[/bold] · {report['rows']:,} requests · {_identity(facts)}")
    if facts["source_name"]:
        out.print(f"made from {facts['source_name']} ({facts['source_format']}) {facts['source_digest']}", style="dim")
    out.print()
    for line in _arrivals(report):
        out.print(line)
    out.print()
    out.print(_lengths(report))
    out.print()
    if report["blocks"] is not None:
        out.print(_reuse(report))
        out.print()
        for line in _sharing(report["blocks"]):
            out.print(line)
        out.print()
    for line in rejections(report["rejected"], report["rejected_examples"]):
        out.print(escape(line))
    for remark in report["remarks"]:
        out.print(f"note: {remark}")


def _identity(facts: dict[str, Any]) -> str:
    if facts["ids"] is None:
        return "no ids"
    if facts["ids"] == "token_ids":
        return f"token ids, {facts['block_tokens']:,}-token blocks"
    return (
        f"{facts['id_kind']} ids of {facts['block_tokens']:,}-token blocks, tail rule {facts['tail_rule']}, "
        f"scope {facts['id_scope']}{', dense' if facts['dense'] else ''}"
    )


def _arrivals(report: dict[str, Any]) -> list[str]:
    arrivals = report["arrivals"]
    if arrivals["span_ns"] is None:
        return ["no rows"]
    rate = arrivals["requests_per_s"]
    lines = [
        f"arrivals: over {format_duration_ns(arrivals['span_ns'])}"
        + (f", {rate:,.3g} requests/s" if rate is not None else "")
        + f", {arrivals['distinct']:,} distinct times, {arrivals['ties']:,} ties"
    ]
    gap = arrivals["gap_ns"]
    if gap is not None:
        lines.append(
            f"gaps: min {format_duration_ns(gap['min'])}, median {format_duration_ns(round(gap['p50']))}, "
            f"max {format_duration_ns(gap['max'])}"
        )
    if report["sessions"] is not None:
        lines.append(f"sessions: {report['sessions']:,}")
    return lines


def _lengths(report: dict[str, Any]) -> Any:
    table = simple_table("tokens", "mean", "min", "p50", "p90", "p99", "max", "sum")
    for name in ("input_tokens", "output_tokens"):
        values = report[name]
        if values is None:
            table.add_row(name.removesuffix("_tokens"), "–")
            continue
        points = [f"{values[point]:,.0f}" for point in ("min", "p50", "p90", "p99", "max", "sum")]
        table.add_row(name.removesuffix("_tokens"), f"{values['mean']:,.2f}", *points)
    return table


def _reuse(report: dict[str, Any]) -> Any:
    table = simple_table("rate", "infinite cache")
    add_remarks(table, "definition")
    for name, definition in RATES.items():
        table.add_row(name, percent(report["infinite_rates"][name]), definition)
    return table


def _sharing(blocks: dict[str, Any]) -> list[str]:
    first = blocks["first_blocks"]
    return [
        f"blocks: {number(blocks['asked'])} asked, {number(blocks['distinct'])} distinct, "
        f"{percent(blocks['used_once_share'])} of them used once, the most used one {blocks['most_uses']:,} times",
        f"first blocks: {first['distinct']:,} distinct, the most common one starts {first['most_rows']:,} requests "
        f"({percent(first['most_rows_share'])})",
    ]
