"""The figures of ``kvbench trace inspect``: the trace over time, when blocks are used again, and block sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.charts import Sheet, plotter
from kvbench.report.figure import Figure, bars, lines
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATED = "share of repeated uses"
SERIES = {
    "requests_per_s": "requests/s",
    "input_tokens": "input tokens",
    "live_blocks": "live blocks",
    "new_blocks": "new blocks",
}
REUSED = {
    "reuse_distance_blocks": ("other blocks before a block is used again", 1),
    "reuse_time_ns": ("seconds before a block is used again", NS_PER_S),
}
"""Histograms by what a bin ends at: its title, and what its unit is divided by."""


def inspection_plotter(path: str, *, force: bool) -> Callable[[dict[str, Any]], None]:
    """A function that draws a report to ``path``. Raises ConfigError at once where that cannot work."""
    return plotter(path, _sheet, force=force)


def _sheet(report: dict[str, Any]) -> Sheet:
    """The figures that the report has numbers for."""
    windows = report["over_time"]
    found = [_over_time(windows, key, title) for key, title in SERIES.items() if windows and key in windows[0]]
    found += [cumulated(report[key], key, *about) for key, about in REUSED.items() if report[key]]
    if report["block_sizes"]:
        found.append(_block_sizes(report["block_sizes"]))
    name = report["trace"]["source_name"] or report["trace"]["name"]
    return Sheet(f"{name}: {report['rows']:,} requests", found, {"trace": report["trace"]})


def _over_time(windows: list[dict[str, Any]], key: str, title: str) -> Figure:
    rows = [{"minutes": row["from_ns"] / NS_PER_S / 60, key: row[key]} for row in windows]
    name = key.replace("_", "-")
    return lines(name, title.capitalize(), rows, x="minutes", y=key, x_title="minutes", y_title=title, step=True)


def cumulated(bins: list[dict[str, int]], key: str, title: str, unit: int, prefix: str = "") -> Figure:
    """Which share of uses of known blocks came within a distance or a time, from a histogram of them; ``prefix``
    stands before the name."""
    total, sum_so_far = sum(each["blocks"] for each in bins), 0
    rows = []
    for each in bins:
        sum_so_far += each["blocks"]
        rows.append({"below": each["below"] / unit, "share": sum_so_far / total})
    return lines(
        prefix + key.replace("_", "-"),
        title.capitalize(),
        rows,
        x="below",
        y="share",
        x_title=title,
        y_title=REPEATED,
        x_log=True,
        percent=True,
    )


def _block_sizes(sizes: list[dict[str, Any]]) -> Figure:
    rows = [{"block_tokens": str(row["block_tokens"]), "token_rate": row["token_rate"]} for row in sizes]
    return bars(
        "block-sizes",
        "Reuse by block size",
        rows,
        x="block_tokens",
        y="token_rate",
        x_title="block tokens",
        y_title="token rate, infinite cache",
        percent=True,
    )
