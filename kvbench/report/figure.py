"""A figure: a chart, and the rows that it draws for readers that are programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.report.encodings import Axis, Names, charted, diagonal, guides, log_ticks
from kvbench.report.theme import ERROR, GUIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    Rows = list[dict[str, Any]]

WIDTH, HEIGHT = 640, 320
"""Of a chart in a file of its own, in pixels; on a page it is as wide as the page lets it."""

ROW_HEIGHT, LOWEST = 28, 72
"""Of one row of a matrix, or one bar that lies; and of the smallest chart."""

POINTED = 60
"""A line of more rows has no points."""

CROWDED = 200
"""More points are small and can be seen through."""

LARGE = 1_000
"""From here on the numbers of a matrix are written with prefixes, as in 12.3k."""

TOUCHED, TOUCHED_POINTS = 220, 400
"""Area in which a point of a line answers the pointer, for a line alone is hard to hit, and harder with a finger; and
about how many such points a chart has, for each of them costs a browser time."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of ``rows``.

    ``name``   of the figure in links and files: small letters, digits and hyphens.
    ``title``  what it shows.
    ``rows``   what is drawn, a dictionary a mark, with the unit in each key; values are text, numbers or None.
    ``chart``  makes the Altair chart. Its data are those of the figure's name (``alt.NamedData(name)``); it has
               neither rows, width, title nor colours of its own.
    ``note``   what a reader has to know beside it.
    ``description``  what is drawn over what, for those who do not see it.
    ``height`` in pixels.
    """

    name: str
    title: str
    rows: Rows
    chart: Callable[[], Any]
    note: str = ""
    description: str = ""
    height: int = HEIGHT

    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification without the rows, as wide as its place."""
        chart = self.chart().properties(width="container", height=self.height)
        return _plain(chart) | {"description": self.description or self.title}

    def drawing(self, width: int = WIDTH) -> dict[str, Any]:
        """The specification with the rows and the title, for a file of its own."""
        chart = self.chart().properties(width=width, height=self.height, title=self.title)
        return _plain(chart) | {"datasets": {self.name: self.rows}}

    def table(self) -> pa.Table:
        """The rows as a table, with columns in the order of their first appearance."""
        import pyarrow as pa

        names = dict.fromkeys(name for row in self.rows for name in row)
        return pa.table({name: _alike([row.get(name) for row in self.rows]) for name in names})


def _alike(values: list[Any]) -> list[Any]:
    """Whole numbers among others as floating-point ones, which a column of a table needs."""
    if any(isinstance(value, float) for value in values):
        return [float(value) if isinstance(value, int) else value for value in values]
    return values


def _plain(chart: Any) -> dict[str, Any]:
    """The specification of ``chart`` without the configuration that Altair adds."""
    spec: dict[str, Any] = chart.to_dict(validate=False)
    spec.pop("config", None)
    return spec


def lines(
    name: str,
    title: str,
    rows: Rows,
    *,
    x: str,
    y: str,
    x_title: str,
    y_title: str,
    series: str | None = None,
    series_title: str = "",
    x_log: bool = False,
    y_log: bool = False,
    percent: bool = False,
    whole: bool = True,
    step: bool = False,
    stacked: bool = False,
    rules: Sequence[tuple[float, str]] = (),
    low: str | None = None,
    high: str | None = None,
    note: str = "",
) -> Figure:
    """Lines of ``y`` over ``x``, one a value of ``series``.

    ``percent``  ``y`` is a share, on an axis to 100 %; not ``whole``: to where it reaches.
    ``step``     a value holds until the next.
    ``stacked``  areas upon each other instead of lines.
    ``rules``    upright lines at values of ``x``, each with what is written beside it.
    ``low``, ``high``  keys of the ends of a band around ``y``.
    """
    across = Axis(x, x_title, log=x_log, zero=False, ticks=_ticks(rows, x, log=x_log))
    domain = (0, 1) if percent and whole else None
    up = Axis(y, y_title, log=y_log, percent=percent, domain=domain, ticks=_ticks(rows, y, log=y_log))
    names = Names.of(rows, series, series_title)

    def chart() -> Any:
        import altair as alt

        base = charted(name, names, across, up).encode(x=across.on(alt.X), y=up.on(alt.Y))
        form = {"interpolate": "step-after"} if step else {}
        drawn = base.mark_area(**form) if stacked else base.mark_line(**form)
        layers = [names.faded(drawn, name) if names is not None else drawn]
        if low is not None and high is not None:
            ends = base.encode(y=alt.Y(field=low, type="quantitative"), y2=alt.Y2(field=high))
            layers.insert(0, ends.mark_area(opacity=0.15))
        if not stacked:
            if not step:
                layers += _pointed(base, names, rows)
            layers.append(_touched(base, names, rows))
        return alt.layer(*layers, *guides(rules, across, rows))

    return Figure(name, title, rows, chart, note, _described("Lines", up, across, names))


def _ticks(rows: Rows, key: str, *, log: bool) -> tuple[float, ...]:
    return log_ticks(row[key] for row in rows) if log else ()


def _pointed(base: Any, names: Names | None, rows: Rows) -> list[Any]:
    """The points of lines of few rows."""
    import altair as alt

    counts = Counter(None if names is None else row[names.key] for row in rows)
    few = [value for value, count in counts.items() if count <= POINTED]
    if not few:
        return []
    if names is None:
        return [base.mark_point(filled=True, size=36, opacity=1)]
    marked = base.encode(shape=names.shape()).mark_point(filled=True, size=36, opacity=1)
    return [marked.transform_filter(alt.FieldOneOfPredicate(field=names.key, oneOf=few))]


def _touched(base: Any, names: Names | None, rows: Rows) -> Any:
    """Points that are not seen, and answer the pointer."""
    points = base.mark_point(filled=True, size=TOUCHED, opacity=0)
    every = -(-len(rows) // TOUCHED_POINTS)
    if every < 2:
        return points
    along = points.transform_window(at="row_number()", groupby=[names.key] if names is not None else [])
    return along.transform_filter(f"datum.at % {every} == 0")


def bars(
    name: str,
    title: str,
    rows: Rows,
    *,
    x: str,
    y: str,
    x_title: str,
    y_title: str,
    series: str | None = None,
    series_title: str = "",
    stacked: bool = True,
    horizontal: bool = False,
    percent: bool = False,
    low: str | None = None,
    high: str | None = None,
    note: str = "",
) -> Figure:
    """Bars as long as ``y``, one a value of ``x``, in the order of the rows.

    ``stacked``     those of a ``series`` stand upon each other; else side by side.
    ``horizontal``  they lie, which leaves room for long names.
    ``percent``     ``y`` is a share.
    ``low``, ``high``  keys of the ends of an error bar.
    """
    length = Axis(y, y_title, percent=percent)
    places = Names(x, x_title or x, tuple(dict.fromkeys(row[x] for row in rows)))
    names = Names.of(rows, series, series_title)

    def chart() -> Any:
        import altair as alt

        along, across = ("x", "y") if horizontal else ("y", "x")
        axis = alt.Axis(domain=False, ticks=False, labelLimit=150) if horizontal else alt.Axis(labelAngle=0)
        place = (alt.Y if horizontal else alt.X)(field=x, type="nominal", sort=None, title=x_title or None, axis=axis)
        bare = charted(name, None, length, others=[places]).encode(**{across: place})
        if names is not None and not stacked:
            beside = alt.YOffset if horizontal else alt.XOffset
            bare = bare.encode(beside(field=names.key, type="nominal", sort=list(names.values)))
        base = (
            bare
            if names is None
            else bare.encode(color=names.colour(), tooltip=[names.tooltip(), *bare.encoding.tooltip])
        )
        channel, end = (alt.X, alt.X2) if horizontal else (alt.Y, alt.Y2)
        drawn = base.encode(**{along: length.on(channel)}).mark_bar()
        layers = [names.faded(drawn, name) if names is not None else drawn]
        if low is not None and high is not None:
            ends = {along: channel(field=low, type="quantitative"), f"{along}2": end(field=high)}
            layers.append(bare.encode(**ends).mark_rule(style=ERROR))
        return alt.layer(*layers)

    deep = len(places.values) * (len(names.values) if names is not None and not stacked else 1)
    height = max(LOWEST, ROW_HEIGHT * deep) if horizontal else HEIGHT
    return Figure(name, title, rows, chart, note, _described("Bars", length, places, names), height)


def matrix(
    name: str,
    title: str,
    rows: Rows,
    *,
    row: str,
    column: str,
    value: str,
    row_title: str,
    column_title: str,
    value_title: str,
    percent: bool = False,
    others: Sequence[tuple[str, str]] = (),
    note: str = "",
) -> Figure:
    """A field for each ``row`` and ``column``, in the order of the rows, coloured by ``value`` and with it written in.

    ``percent``  the value is a share.
    ``others``   (key, title) of more numbers to show at the pointer.
    """
    shade = Axis(value, value_title, percent=percent)
    down, across = (Names.of(rows, key, text) for key, text in ((row, row_title), (column, column_title)))

    def chart() -> Any:
        import altair as alt

        gaps = alt.Scale(paddingInner=0.05)
        shown: list[Axis | Names] = [part for part in (down, across) if part is not None]
        axis = alt.Axis(labelAngle=0, domain=False, ticks=False, labelLimit=150)
        base = charted(name, None, shade, others=[*shown, *(Axis(*other) for other in others)]).encode(
            x=alt.X(field=column, type="nominal", sort=None, title=column_title, axis=axis, scale=gaps),
            y=alt.Y(field=row, type="nominal", sort=None, title=row_title, axis=axis, scale=gaps),
        )
        fields = base.mark_rect(cornerRadius=2).encode(
            color=alt.Color(field=value, type="quantitative", legend=None, scale=alt.Scale(zero=False, nice=False))
        )
        dark = f"luminance(scale('color', datum['{value}'])) < 0.18"
        ink = alt.condition(dark, alt.value("#ffffff"), alt.value("#101418"))
        large = max((row[value] or 0 for row in rows), default=0) >= LARGE
        text = alt.Text(field=value, type="quantitative", format=".1%" if percent else ".3~s" if large else ",.3~g")
        return alt.layer(fields, base.mark_text(fontWeight=500).encode(text=text, color=ink))

    height = max(LOWEST, ROW_HEIGHT * (len(down.values) if down is not None else 1))
    described = f"Matrix of {value_title}: {row_title} by {column_title}."
    return Figure(name, title, rows, chart, note, described, height)


def points(
    name: str,
    title: str,
    rows: Rows,
    *,
    x: str,
    y: str,
    x_title: str,
    y_title: str,
    series: str | None = None,
    series_title: str = "",
    label: str | None = None,
    x_percent: bool = False,
    percent: bool = False,
    x_log: bool = False,
    y_log: bool = False,
    low: str | None = None,
    high: str | None = None,
    x_low: str | None = None,
    x_high: str | None = None,
    front: str | None = None,
    equal: bool = False,
    others: Sequence[tuple[str, str]] = (),
    note: str = "",
) -> Figure:
    """A point of ``y`` over ``x`` for each row.

    ``label``          key of what is written beside a point.
    ``low`` … ``x_high``  keys of the ends of error bars.
    ``front``          key of what is true of points that no other beats in both; a line joins them.
    ``equal``          both axes are alike, and a line marks where both values are equal.
    ``others``         (key, title) of more numbers to show at the pointer.
    """
    ends = [row[key] for row in rows for key in (x, y) if row[key] is not None] if equal else []
    domain = (min(ends), max(ends)) if ends else None
    across = Axis(
        x,
        x_title,
        log=x_log,
        percent=x_percent,
        zero=False,
        domain=domain,
        padding=24,
        ticks=_ticks(rows, x, log=x_log),
    )
    up = Axis(
        y, y_title, log=y_log, percent=percent, zero=False, domain=domain, padding=16, ticks=_ticks(rows, y, log=y_log)
    )
    names = Names.of(rows, series, series_title)

    def chart() -> Any:
        import altair as alt

        more: list[Axis | Names] = [Axis(*other) for other in others]
        if label is not None:
            more.append(Names(label, label, ()))
        bare = charted(name, None, across, up, others=more).encode(x=across.on(alt.X), y=up.on(alt.Y))
        base = charted(name, names, across, up, others=more).encode(x=across.on(alt.X), y=up.on(alt.Y))
        layers = [] if domain is None else [diagonal(domain, across, up)]
        if front is not None:
            best = bare.transform_filter(f"datum['{front}']").encode(order=alt.Order(field=x, type="quantitative"))
            layers.append(best.mark_line(style=GUIDE))
        for ends, along, channel, end in (((low, high), "y", alt.Y, alt.Y2), ((x_low, x_high), "x", alt.X, alt.X2)):
            if None not in ends:
                span = {along: channel(field=ends[0], type="quantitative"), f"{along}2": end(field=ends[1])}
                layers.append(bare.encode(**span).mark_rule(style=ERROR))
        marks = base.encode(shape=names.shape()) if names is not None else base
        many = len(rows) > CROWDED
        drawn = marks.mark_point(filled=True, size=14 if many else 80, opacity=0.4 if many else 0.9)
        layers.append(names.faded(drawn, name) if names is not None else drawn)
        if label is not None:
            written = bare.encode(text=alt.Text(field=label, type="nominal"))
            layers.append(written.mark_text(align="left", dx=9, dy=-6))
        return alt.layer(*layers)

    return Figure(name, title, rows, chart, note, _described("Points", up, across, names))


def _described(form: str, up: Axis, across: Axis | Names, names: Names | None) -> str:
    by = "" if names is None else f", one for each {names.title}"
    return f"{form} of {up.title} over {across.title}{by}."
