"""What the charts of :mod:`kvbench.report.figure` are made of: axes, series, tooltips, guides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.report.theme import GUIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TICKS = 6
"""About how many an axis has."""

LABEL = "format(datum.value, abs(datum.value) >= 1000 ? '~s' : '~g')"
"""Of a tick: large numbers as 10k, small ones as 0.01."""

SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
"""Of points, beside their colours: a series is told by more than its colour."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One quantity of a chart: its key in the rows, its title with the unit, and its scale.

    ``percent``  it is a share, written in percent.
    ``domain``   the ends of the scale; None: those of the data, and 0 where ``zero`` is set.
    ``padding``  pixels between the data and the ends of the axis.
    ``ticks``    values that are written at it; none: some round ones.
    """

    key: str
    title: str
    log: bool = False
    percent: bool = False
    zero: bool = True
    domain: Sequence[float] | None = None
    padding: int = 0
    ticks: tuple[float, ...] = ()

    def on(self, channel: Any) -> Any:
        """The channel (``alt.X`` or ``alt.Y``) of it."""
        import altair as alt

        scale: dict[str, Any] = {"type": "log", "nice": False} if self.log else {"zero": self.zero}
        if self.domain is not None:
            scale |= {"domain": list(self.domain)}
        if self.padding:
            scale |= {"padding": self.padding}
        labels = {"format": "~%"} if self.percent else {"labelExpr": LABEL}
        return channel(
            field=self.key,
            type="quantitative",
            title=self.title,
            scale=alt.Scale(**scale),
            axis=alt.Axis(**labels, **({"values": list(self.ticks)} if self.ticks else {"tickCount": TICKS})),
        )

    def tooltip(self) -> Any:
        """What is shown of it at the pointer."""
        import altair as alt

        shown = ".2%" if self.percent else ",.4~g"
        return alt.Tooltip(field=self.key, type="quantitative", title=self.title, format=shown)


def log_ticks(values: Iterable[float | None]) -> tuple[float, ...]:
    """Powers of ten among ``values``, and more where there are few of them; none where they do not span enough."""
    known = [value for value in values if value is not None and value > 0]
    if not known or max(known) < 2 * min(known):
        return ()
    first, last = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    steps = {1: (1, 2, 3, 4, 5, 6, 8), 2: (1, 2, 3, 5), 3: (1, 2, 5)}.get(last - first, (1,))
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return tuple(float(f"{tick:.6g}") for tick in ticks if min(known) <= tick <= max(known))


@dataclass(frozen=True, slots=True)
class Names:
    """What names marks: its key in the rows, its title, and its values in their order."""

    key: str
    title: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, rows: list[dict[str, Any]], key: str | None, title: str) -> Names | None:
        """Those of ``key``, in the order of the rows; None without one."""
        if key is None:
            return None
        return cls(key, title or key, tuple(dict.fromkeys(row[key] for row in rows)))

    def colour(self) -> Any:
        """The colour of each."""
        import altair as alt

        return alt.Color(field=self.key, type="nominal", title=None, scale=alt.Scale(domain=list(self.values)))

    def shape(self) -> Any:
        """The shape of the points of each."""
        import altair as alt

        scale = alt.Scale(domain=list(self.values), range=[SHAPES[i % len(SHAPES)] for i in range(len(self.values))])
        return alt.Shape(field=self.key, type="nominal", title=None, scale=scale)

    def tooltip(self) -> Any:
        """What is shown of it at the pointer."""
        import altair as alt

        return alt.Tooltip(field=self.key, type="nominal", title=self.title)

    def faded(self, base: Any, figure: str) -> Any:
        """``base`` of ``figure`` with all but the series that is chosen in the legend faded."""
        import altair as alt

        name = "chosen_" + figure.replace("-", "_")
        chosen = alt.selection_point(name=name, fields=[self.key], bind="legend")
        faded = base.encode(opacity=alt.condition(chosen, alt.value(1), alt.value(0.15)))
        return faded.add_params(chosen).properties(name=f"{name}_marks")


def charted(figure: str, series: Names | None, *axes: Axis, others: Sequence[Axis | Names] = ()) -> Any:
    """A chart of the rows of ``figure`` with colours by ``series``, and what the pointer shows."""
    import altair as alt

    shown = [part.tooltip() for part in (*((series,) if series is not None else ()), *axes, *others)]
    base = alt.Chart(alt.NamedData(name=figure)).encode(tooltip=shown)
    return base if series is None else base.encode(color=series.colour())


def guides(marks: Sequence[tuple[float, str]], axis: Axis, rows: list[dict[str, Any]]) -> list[Any]:
    """Upright lines at values of ``axis``, and what is written beside each, on the side that has room."""
    import altair as alt

    if not marks:
        return []
    ends = [row[axis.key] for row in rows if row[axis.key] is not None]
    low, high = min(ends, default=0), max(ends, default=0)
    middle = (low * high) ** 0.5 if axis.log and low > 0 else (low + high) / 2
    layers = []
    for at, text in marks:
        rule = alt.Chart(alt.Data(values=[{axis.key: at, "text": text}]))
        place = rule.encode(x=alt.X(field=axis.key, type="quantitative"))
        side = {"align": "left", "dx": 6} if at <= middle else {"align": "right", "dx": -6}
        layers.append(place.mark_rule(style=GUIDE))
        layers.append(
            place.mark_text(**side, baseline="bottom", dy=-6, fontWeight=500).encode(
                y=alt.YValue("height"), text=alt.Text(field="text")
            )
        )
    return layers


def diagonal(ends: tuple[float, float], across: Axis, up: Axis) -> Any:
    """The line where the values of both axes are equal."""
    import altair as alt

    line = alt.Chart(alt.Data(values=[{across.key: end, up.key: end} for end in ends]))
    return line.mark_line(style=GUIDE).encode(
        x=alt.X(field=across.key, type="quantitative"), y=alt.Y(field=up.key, type="quantitative")
    )
