"""What ``kvbench curve`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.cli.tables import Printer, simple_table
from kvbench.results.headline import number, percent
from kvbench.results.rates import RATES
from kvbench.units import format_bytes, format_count, format_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.config import RunConfig
    from kvbench.results.curve import CurveResult

BAR_WIDTH = 40
ERROR_RATE = "token"


def print_curve(result: CurveResult, config: RunConfig, written: list[str]) -> None:
    """Print a curve and what goes with it."""
    out = Printer()
    out.print(_headline(result, config))
    out.print()
    out.print(_curve(result))
    out.print()
    for line in _knee(result):
        out.print(line)
    out.print()
    for title, name, text in (
        ("reuse distance (blocks)", "reuse_distance_blocks", number),
        ("reuse time", "reuse_time_ns", format_duration_ns),
    ):
        if result.summary[name]:
            out.print(_histogram(title, result.summary[name], text))
            out.print()
    for line in _remarks(result):
        out.print(line)
    for path in written:
        out.print(f"wrote {path}")
    clock = result.wall_clock
    out.print(
        f"wall clock: {clock['total_s']:.2f} s, of which {clock['replay_s']:.2f} s for the pass: "
        f"{format_count(clock['requests_per_s'])} requests/s, {format_count(clock['blocks_per_s'])} blocks/s",
        style="dim",
    )


def _headline(result: CurveResult, config: RunConfig) -> str:
    trace, sample, blocks = result.manifest["trace"], result.summary["sample"], result.summary["blocks"]
    about = "about " if sample is not None else ""
    parts = [
        f"[bold]{config.trace}[/bold]",
        f"{result.summary['requests']['done']:,} requests",
        f"{trace['block_tokens']:,}-token blocks" if trace["block_tokens"] else "no block size",
        f"{about}{blocks['distinct']:,} distinct blocks of {blocks['cacheable']:,} cacheable ones",
        f"lru, tail-first, tails {result.manifest['config']['tails']}",
        f"{sample['rate']:.4g} of the {sample['by']}s" if sample is not None else "all capacities in one pass",
    ]
    return " · ".join(parts)


def _curve(result: CurveResult) -> Any:
    rows = result.curve
    sized = any("capacity_bytes" in row for row in rows)
    bars = any("rates_low" in row for row in rows)
    table = simple_table(
        "capacity",
        *(["bytes"] if sized else []),
        *RATES,
        *([f"{ERROR_RATE}: low … high"] if bars else []),
        f"token gain a {rows[0]['marginal_of'] if rows else 'block'}",
    )
    for row in rows:
        table.add_row(
            f"{row['capacity_blocks']:,}",
            *([format_bytes(row["capacity_bytes"])] if sized else []),
            *(percent(row["rates"][name]) for name in RATES),
            *([f"{percent(row['rates_low'][ERROR_RATE])} … {percent(row['rates_high'][ERROR_RATE])}"] if bars else []),
            _gain(row["marginal_token_rate"]),
        )
    infinite = result.summary["infinite_rates"]
    blank = [""] if sized else []
    table.add_row("infinite", *blank, *(percent(infinite[name]) for name in RATES))
    return table


def _gain(gain: float | None) -> str:
    return "–" if gain is None else f"{100 * gain:.3g} %"


def _knee(result: CurveResult) -> list[str]:
    knee, last = result.summary["knee"], result.summary["saturation_blocks"]
    if last is None:
        return ["no block is used twice: no capacity hits anything"]
    lines = [f"saturation: {last:,} blocks hit all that an infinite cache does"]
    if knee is not None:
        lines.insert(
            0,
            f"knee: {knee['capacity_blocks']:,} blocks, {knee['rate']} rate {percent(knee['value'])} (farthest above "
            "the line from the first to the last change, on a logarithmic axis)",
        )
    return lines


def _histogram(title: str, bins: list[dict[str, int]], text: Callable[[int], str]) -> Any:
    table = simple_table(title, "below", "blocks")
    table.add_column("", justify="left", style="dim", no_wrap=True)
    most = max(each["blocks"] for each in bins)
    for each in bins:
        if each["blocks"] == 0:
            continue
        bar = "█" * round(BAR_WIDTH * each["blocks"] / most)
        table.add_row(text(each["from"]), text(each["below"]), f"{each['blocks']:,}", bar)
    return table


def _remarks(result: CurveResult) -> list[str]:
    from kvbench.replays.sample import FEW_UNITS, HEAVY_SHARE

    remarks = []
    sample, requests = result.summary["sample"], result.summary["requests"]
    if sample is not None:
        remarks.append(
            f"sample: {sample['units']:,} of {sample['all_units']:,} {sample['by']}s, {sample['requests']:,} requests; "
            f"error bars are {sample['error_bars']}"
        )
        if sample["units"] < FEW_UNITS:
            remarks.append(f"note: {sample['units']} {sample['by']}s are few, and the error bars wide; raise --sample")
        if sample["largest_unit_share"] > HEAVY_SHARE:
            remarks.append(
                f"note: one {sample['by']} has {percent(sample['largest_unit_share'])} of the requests, so the sample "
                f"depends on whether it is in; {_advice(sample)}"
            )
    if requests["rejected"]:
        remarks.append(f"rejected: {requests['rejected']:,} rows, for example:")
        remarks += [f"  {example}" for example in requests["rejected_examples"]]
    return remarks


def _advice(sample: dict[str, Any]) -> str:
    if sample["by"] == "session":
        return "leave --sample out"
    session = "--sample-by session or " if sample["has_sessions"] else ""
    return f"try {session}--sample-depth {sample['depth'] + 1}"
