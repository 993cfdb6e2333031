"""The charts of ``kvbench trace inspect``: the trace over time, when blocks are used again, and block sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.charts import plotter
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, HEIGHT = 360, 200
REPEATED = "share of repeated uses"
SERIES = {
    "requests_per_s": "requests/s",
    "input_tokens": "input tokens",
    "live_blocks": "live blocks",
    "new_blocks": "new blocks",
}


def inspection_plotter(path: str, *, force: bool) -> Callable[[dict[str, Any]], None]:
    """A function that draws a report to ``path``. Raises ConfigError at once where that cannot work."""
    return plotter(path, charts, force=force)


def charts(report: dict[str, Any]) -> Any:
    """The charts that the report has figures for, two in a row, as one Altair object."""
    import altair as alt

    found = []
    windows = report["over_time"]
    if windows:
        shown = {name: title for name, title in SERIES.items() if name in windows[0]}
        found += [_over_time(windows, name, title) for name, title in shown.items()]
    if report["reuse_distance_blocks"]:
        found.append(_cumulated(report["reuse_distance_blocks"], 1, "other blocks before a block is used again"))
    if report["reuse_time_ns"]:
        found.append(_cumulated(report["reuse_time_ns"], NS_PER_S, "seconds before a block is used again"))
    if report["block_sizes"]:
        found.append(_block_sizes(report["block_sizes"]))
    name = report["trace"]["source_name"] or report["trace"]["name"]
    if not found:
        return alt.Chart(alt.Data(values=[{}])).mark_text(text="nothing to draw").properties(title=name)
    return alt.concat(*found, columns=2).properties(title=f"{name}: {report['rows']:,} requests")


def _over_time(windows: list[dict[str, Any]], column: str, title: str) -> Any:
    import altair as alt

    rows = [{"minutes": row["from_ns"] / NS_PER_S / 60, "value": row[column]} for row in windows]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(interpolate="step-after")
        .encode(x=alt.X("minutes:Q", title="minutes"), y=alt.Y("value:Q", title=title))
        .properties(width=WIDTH, height=HEIGHT)
    )


def _cumulated(bins: list[dict[str, int]], unit: int, title: str) -> Any:
    import altair as alt

    total, sum_so_far = sum(each["blocks"] for each in bins), 0
    rows = []
    for each in bins:
        sum_so_far += each["blocks"]
        rows.append({"below": each["below"] / unit, "share": sum_so_far / total})
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("below:Q", scale=alt.Scale(type="log"), title=title),
            y=alt.Y("share:Q", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]), title=REPEATED),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )


def _block_sizes(sizes: list[dict[str, Any]]) -> Any:
    import altair as alt

    rows = [{"tokens": str(row["block_tokens"]), "rate": row["token_rate"]} for row in sizes]
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("tokens:N", sort=[row["tokens"] for row in rows], title="block tokens"),
            y=alt.Y("rate:Q", axis=alt.Axis(format="%"), title="token rate, infinite cache"),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
