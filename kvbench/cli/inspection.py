"""What ``kvbench trace inspect`` prints."""

from __future__ import annotations

from typing import Any

from rich.markup import escape

from kvbench.cli.tables import Printer, add_remarks, rejections, simple_table
from kvbench.results.bins import bin_end
from kvbench.results.headline import number, percent
from kvbench.results.rates import RATES
from kvbench.tokens.database import NAMESPACE_COLUMNS
from kvbench.units import format_duration_ns

REUSE_SHARES = (0.5, 0.9)
MOST_TENANTS = 10
WINDOWS_PER_ROW = 6
BAR_WIDTH = 30


def print_inspection(report: dict[str, Any]) -> None:
    """Print the report of :func:`kvbench.results.inspect.inspect_trace`."""
    out = Printer()
    facts = report["trace"]
    out.print(f"[bold]{escape(facts['name'])}[/bold] · {report['rows']:,} requests · {_identity(facts)}")
    if facts["source_name"]:
        out.print(f"made from {facts['source_name']} ({facts['source_format']}) {facts['source_digest']}", style="dim")
    if facts["capacity_factor"] != 1:
        out.print(f"a sample: a cache of N blocks for the whole corresponds to {facts['capacity_factor']:g} · N here")
    for part in (
        [*_arrivals(report), *_sessions(report)],
        [_lengths(report)],
        [_reuse(report), "", *_sharing(report)] if report["blocks"] is not None else [],
        [_tenants(report["tenants"])] if report["tenants"] is not None else [],
        [_block_sizes(report["block_sizes"])] if report["block_sizes"] else [],
        [_over_time(report["over_time"])] if report["over_time"] else [],
        [*map(escape, rejections(report["rejected"], report["rejected_examples"]))],
        [f"note: {remark}" for remark in report["remarks"]],
    ):
        for at, line in enumerate(part):
            if at == 0:
                out.print()
            out.print(line)


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
            f"gaps: min {format_duration_ns(gap['min'])} ({percent(gap['at_min_share'])} of them), "
            f"median {format_duration_ns(round(gap['p50']))}, max {format_duration_ns(gap['max'])}"
            + (f", coefficient of variation {gap['cv']:.3g}" if gap["cv"] is not None else "")
        )
    return lines


def _sessions(report: dict[str, Any]) -> list[str]:
    sessions, think = report["sessions"], report["think_time_ns"]
    lines = []
    if sessions is not None:
        lines.append(
            f"sessions: {sessions['sessions']:,} of {sessions['turns_mean']:.3g} turns "
            f"(median {sessions['turns_p50']:g}, 90 % up to {sessions['turns_p90']:g}, max {sessions['turns_max']:,})"
            + (f", {sessions['rows_without']:,} rows without one" if sessions["rows_without"] else "")
        )
    if think is not None:
        points = [format_duration_ns(think[point]) for point in ("p50", "p90", "max")]
        lines.append(f"think time: median {points[0]}, 90 % up to {points[1]}, max {points[2]}")
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


def _sharing(report: dict[str, Any]) -> list[str]:
    blocks, sessions = report["blocks"], report["sessions"]
    apart = " and ".join(name for name in NAMESPACE_COLUMNS if name in report["columns"])
    first = blocks["first_blocks"]
    lines = [
        f"blocks: {number(blocks['asked'])} asked, {number(blocks['distinct'])} distinct"
        f"{f' (an id counts once for each {apart})' if apart else ''}, "
        f"{percent(blocks['used_once_share'])} of them used once, the most used one {blocks['most_uses']:,} times",
        f"first blocks: {first['distinct']:,} distinct, the most common one starts {first['most_rows']:,} requests "
        f"({percent(first['most_rows_share'])}), {first['for_90_percent']:,} start 90 %",
    ]
    if sessions is not None and sessions["hit_blocks"]["same_session_share"] is not None:
        lines.append(
            f"hits: {percent(sessions['hit_blocks']['same_session_share'])} on blocks that the same session used last, "
            f"{percent(sessions['hit_blocks']['other_session_share'])} on another's"
        )
    distance, time = report["reuse_distance_blocks"], report["reuse_time_ns"]
    if distance and time:
        near, far = (bin_end(distance, share) for share in REUSE_SHARES)
        soon, late = (bin_end(time, share) for share in REUSE_SHARES)
        lines.append(
            f"uses again: half of them below {near:,} other blocks and {format_duration_ns(soon)} later, "
            f"90 % below {far:,} and {format_duration_ns(late)}"
        )
    return lines


def _tenants(tenants: dict[str, Any]) -> Any:
    table = simple_table("tenant", "requests", "blocks asked", "hit", "token rate")
    for row in tenants["top"][:MOST_TENANTS]:
        figures = (f"{row[name]:,}" for name in ("rows", "asked_blocks", "hit_blocks"))
        table.add_row(escape(row["tenant"]), *figures, percent(row["token_rate"]))
    rest = tenants["tenants"] - min(MOST_TENANTS, len(tenants["top"]))
    if rest:
        table.add_row(f"and {rest:,} more")
    return table


def _block_sizes(sizes: list[dict[str, Any]]) -> Any:
    table = simple_table("block tokens", "hit tokens", "token rate", "share less than a block")
    for row in sizes:
        short = f"{row['shorter_than_block_requests']:,} requests"
        table.add_row(f"{row['block_tokens']:,}", f"{row['hit_tokens']:,}", percent(row["token_rate"]), short)
    return table


def _over_time(windows: list[dict[str, Any]]) -> Any:
    blocks = "live_blocks" in windows[0]
    headers = ("from", "requests", "requests/s", "input tokens")
    table = simple_table(*headers, *(("new blocks", "live blocks") if blocks else ()))
    if blocks:
        add_remarks(table)
    most = max((row.get("live_blocks", 0) for row in windows), default=0)
    for at in range(0, len(windows), WINDOWS_PER_ROW):
        rows = windows[at : at + WINDOWS_PER_ROW]
        cells = [
            format_duration_ns(rows[0]["from_ns"]),
            f"{sum(row['requests'] for row in rows):,}",
            f"{sum(row['requests_per_s'] for row in rows) / len(rows):,.3g}",
            f"{sum(row['input_tokens'] for row in rows):,}",
        ]
        if blocks:
            live = max(row["live_blocks"] for row in rows)
            bar = "█" * round(BAR_WIDTH * live / most) if most else ""
            cells += [f"{sum(row['new_blocks'] for row in rows):,}", f"{live:,}", bar]
        table.add_row(*cells)
    return table
