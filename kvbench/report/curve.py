"""The figures of a curve: rates over capacity, the knee, and error bars where there are some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.report.charts import Sheet, plotter
from kvbench.report.figure import lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.results.curve import CurveResult

SHOWN = ("token", "block", "request_mean", "request_any")


def curve_plotter(path: str, *, force: bool) -> Callable[[CurveResult], None]:
    """A function that draws a curve to ``path``. Raises ConfigError at once where that cannot work."""
    return plotter(path, _sheet, force=force)


def _sheet(result: CurveResult) -> Sheet:
    trace, summary = result.manifest["trace"], result.summary
    rows = [
        {
            "capacity_blocks": row["capacity_blocks"],
            "rate": name,
            "hit_rate": row["rates"][name],
            **({"low": row["rates_low"][name], "high": row["rates_high"][name]} if "rates_low" in row else {}),
        }
        for row in result.curve
        for name in SHOWN
        if row["rates"][name] is not None and row["capacity_blocks"]
    ]
    knee, has_bars = summary["knee"], summary["sample"] is not None
    figure = lines(
        "curve",
        "LRU hit rate at every capacity",
        rows,
        x="capacity_blocks",
        y="hit_rate",
        x_title="capacity (blocks)",
        y_title="LRU hit rate",
        series="rate",
        x_log=True,
        percent=True,
        rules=[(knee["capacity_blocks"], f"knee: {knee['capacity_blocks']:,} blocks")] if knee is not None else [],
        low="low" if has_bars else None,
        high="high" if has_bars else None,
    )
    counted = f"{summary['requests']['done']:,} requests, {summary['blocks']['distinct']:,} blocks"
    return Sheet(f"{trace['source_name'] or trace['digest']}: {counted}", [figure], result.manifest)
