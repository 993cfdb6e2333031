"""The figures of a run beside a measurement: what was predicted over what was measured, a point a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.report.charts import Sheet, plotter
from kvbench.report.figure import Figure, points

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.results.accuracy import MeasuredComparison

MAX_POINTS = 5_000
"""Of a latency; of more requests every so many-th is drawn, in the order of their numbers."""

TITLES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def scatter_plotter(path: str, *, force: bool) -> Callable[[MeasuredComparison], None]:
    """A function that draws a comparison to ``path``. Raises ConfigError at once where that cannot work."""
    return plotter(path, _sheet, force=force)


def _sheet(comparison: MeasuredComparison) -> Sheet:
    """A figure a latency, with logarithmic axes and the line where both are equal."""
    engine = comparison.engine or comparison.source
    figures = [_scatter(comparison, name) for name in comparison.accuracy]
    return Sheet(f"{comparison.run} beside {comparison.measured} ({engine})", figures, comparison.manifest)


def _scatter(comparison: MeasuredComparison, name: str) -> Figure:
    import pyarrow.compute as pc

    pairs = comparison.pairs.filter(pc.equal(comparison.pairs["latency"], name))
    every = -(-len(pairs) // MAX_POINTS)
    rows = [
        {
            "request": row["request"],
            "measured_ms": row["measured_ns"] / 1e6,
            "predicted_ms": row["predicted_ns"] / 1e6,
            "error": row["predicted_ns"] / row["measured_ns"] - 1,
        }
        for row in pairs.take(list(range(0, len(pairs), every))).to_pylist()
        if row["predicted_ns"] > 0
    ]
    title = TITLES[name]
    return points(
        name,
        f"{title}: MAPE {100 * (comparison.accuracy[name].mape or 0):.1f} %",
        rows,
        x="measured_ms",
        y="predicted_ms",
        x_title=f"measured {title} (ms)",
        y_title=f"predicted {title} (ms)",
        x_log=True,
        y_log=True,
        equal=True,
        others=[("request", "request"), ("error", "error")],
        note=f"Every {every:,}th request is drawn." if every > 1 else "",
    )
