"""The chart of a curve: rates over capacity, the knee, and error bars where there are some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.charts import plotter

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.results.curve import CurveResult

SHOWN = ("token", "block", "request_mean", "request_any")


def curve_plotter(path: str, *, force: bool) -> Callable[[CurveResult], None]:
    """A function that draws a curve to ``path``. Raises ConfigError at once where that cannot work."""
    return plotter(path, chart, force=force)


def chart(result: CurveResult) -> Any:
    """The chart as an Altair object."""
    import altair as alt

    rows = [
        {
            "capacity": row["capacity_blocks"],
            "rate": row["rates"][name],
            "name": name,
            "low": row.get("rates_low", {}).get(name),
            "high": row.get("rates_high", {}).get(name),
        }
        for row in result.curve
        for name in SHOWN
        if row["rates"][name] is not None
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        x=alt.X("capacity:Q", scale=alt.Scale(type="log"), title="capacity (blocks)"),
        color=alt.Color("name:N", title="rate", sort=list(SHOWN)),
    )
    points = base.mark_line(point=True).encode(
        y=alt.Y("rate:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]), title="LRU hit rate"),
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("capacity:Q", format=","), alt.Tooltip("rate:Q", format=".2%")],
    )
    layers = [points]
    if result.summary["sample"] is not None:
        layers.insert(0, base.mark_area(opacity=0.15).encode(y="low:Q", y2="high:Q"))
    knee = result.summary["knee"]
    if knee is not None:
        mark = alt.Data(values=[{"capacity": knee["capacity_blocks"]}])
        layers.append(alt.Chart(mark).mark_rule(strokeDash=[4, 4]).encode(x="capacity:Q"))
    return alt.layer(*layers).properties(width=720, height=420, title=_title(result))


def _title(result: CurveResult) -> str:
    trace = result.manifest["trace"]
    name = trace["source_name"] or trace["digest"]
    return f"{name}: {result.summary['requests']['done']:,} requests, {result.summary['blocks']['distinct']:,} blocks"
