"""The chart of a run beside a measurement: what was predicted over what was measured, a point a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.charts import plotter

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.results.accuracy import MeasuredComparison

MAX_POINTS = 5_000
"""Of a latency; of more requests every so many-th is drawn, in the order of their numbers."""

TITLES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}


def scatter_plotter(path: str, *, force: bool) -> Callable[[MeasuredComparison], None]:
    """A function that draws a comparison to ``path``. Raises ConfigError at once where that cannot work."""
    return plotter(path, scatter, force=force)


def scatter(comparison: MeasuredComparison) -> Any:
    """The chart as an Altair object: one panel a latency, logarithmic axes, and the line where both are equal."""
    import altair as alt

    panels = [_panel(comparison, name) for name in comparison.accuracy]
    engine = comparison.engine or comparison.source
    return alt.hconcat(*panels).properties(title=f"{comparison.run} beside {comparison.measured} ({engine})")


def _panel(comparison: MeasuredComparison, name: str) -> Any:
    import altair as alt
    import pyarrow.compute as pc

    pairs = comparison.pairs.filter(pc.equal(comparison.pairs["latency"], name))
    every = -(-len(pairs) // MAX_POINTS)
    points = [
        {
            "request": row["request"],
            "measured": row["measured_ns"] / 1e6,
            "predicted": row["predicted_ns"] / 1e6,
            "error": row["predicted_ns"] / row["measured_ns"] - 1,
        }
        for row in pairs.take(list(range(0, len(pairs), every))).to_pylist()
        if row["predicted_ns"] > 0
    ]
    ends = [value for point in points for value in (point["measured"], point["predicted"])]
    scale = alt.Scale(type="log", domain=[min(ends, default=1), max(ends, default=1)], nice=False)
    title = TITLES[name]
    marks = (
        alt.Chart(alt.Data(values=points))
        .mark_circle(size=14, opacity=0.4)
        .encode(
            x=alt.X("measured:Q", scale=scale, title=f"measured {title} (ms)"),
            y=alt.Y("predicted:Q", scale=scale, title=f"predicted {title} (ms)"),
            tooltip=[
                alt.Tooltip("request:Q"),
                alt.Tooltip("measured:Q", format=".4~g"),
                alt.Tooltip("predicted:Q", format=".4~g"),
                alt.Tooltip("error:Q", format="+.1%"),
            ],
        )
    )
    line = alt.Data(values=[{"at": end} for end in (min(ends, default=1), max(ends, default=1))])
    equal = alt.Chart(line).mark_line(strokeDash=[4, 4], color="gray").encode(x="at:Q", y="at:Q")
    found = comparison.accuracy[name]
    return alt.layer(equal, marks).properties(
        width=300, height=300, title=f"{title}: MAPE {100 * (found.mape or 0):.1f} %"
    )
