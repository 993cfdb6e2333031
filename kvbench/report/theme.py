"""How charts look: colours of both schemes, and the configuration that Vega-Lite takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif'

RAMP = ("#dbe9f6", "#0b4a86")
"""Ends of the scale of a matrix, in both schemes; its numbers are black or white, whichever can be read."""


GUIDE, ERROR = "guide", "error"
"""Styles of marks: what helps to read a chart, and how sure a value is."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """Colours of one scheme: ``series`` in the order in which they are taken, each with a contrast of at least 3 to
    the ground, and neighbours told apart under colour blindness by lightness, too."""

    ground: str
    text: str
    muted: str
    line: str
    guide: str
    series: tuple[str, ...]


LIGHT = Scheme(
    ground="#ffffff",
    text="#1b1f24",
    muted="#57606a",
    line="#d8dee4",
    guide="#57606a",
    series=("#0064b8", "#d8690c", "#169b6b", "#7b3774", "#875c11", "#2f2f33", "#4f8fc9", "#971c48"),
)
DARK = Scheme(
    ground="#12161b",
    text="#e8ebee",
    muted="#a3adb8",
    line="#303841",
    guide="#a3adb8",
    series=("#70c1ff", "#fc845c", "#62e7ab", "#ed81c1", "#ffb84b", "#e4e6e8", "#3f7fb8", "#eb697f"),
)


def config(scheme: Scheme) -> dict[str, Any]:
    """The configuration of Vega-Lite for charts in ``scheme``, whose colours may be any that CSS knows."""
    labels = {
        "labelColor": scheme.muted,
        "titleColor": scheme.text,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "aria": False,
    }
    return {
        "font": FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {
            **labels,
            "titleFontWeight": 500,
            "titlePadding": 10,
            "gridColor": scheme.line,
            "domainColor": scheme.line,
            "tickColor": scheme.line,
            "labelPadding": 6,
            "labelOverlap": "greedy",
            "labelSeparation": 6,
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            **labels,
            "labelFontSize": 12,
            "labelColor": scheme.text,
            "titleFontWeight": 500,
            "orient": "top",
            "direction": "horizontal",
            "columns": {"expr": "max(1, floor(width / 150))"},
            "labelLimit": 260,
            "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
            "offset": 12,
        },
        "title": {
            "color": scheme.text,
            "fontSize": 14,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 14,
            "subtitleColor": scheme.muted,
        },
        "text": {"color": scheme.text, "fontSize": 11},
        # A chart is told by the label of its drawing and by the table of its rows, not by thousands of marks.
        "mark": {"color": scheme.series[0], "aria": False},
        "line": {"strokeWidth": 2},
        "style": {
            GUIDE: {"color": scheme.guide, "strokeDash": [4, 4], "strokeWidth": 1},
            ERROR: {"color": scheme.text, "strokeWidth": 1.5, "opacity": 0.75},
        },
        "bar": {"cornerRadiusEnd": 1},
        "range": {"category": list(scheme.series), "heatmap": list(RAMP), "ramp": list(RAMP)},
    }


def variables() -> Scheme:
    """A scheme of CSS variables, which a page gives their values: its charts follow its colours."""
    series = tuple(f"var(--s{at})" for at in range(len(LIGHT.series)))
    return Scheme("var(--ground)", "var(--text)", "var(--muted)", "var(--line)", "var(--guide)", series)


def colours_as_css() -> str:
    """The values of :func:`variables`: light ones, and dark ones where the reader or the reader's system wants them;
    on paper light ones."""
    light, dark = _declared(LIGHT, "light"), _declared(DARK, "dark")
    return (
        f":root {{ {light} }}\n:root[data-scheme=dark] {{ {dark} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-scheme=light]) {{ {dark} }} }}\n"
        f"@media print {{ :root, :root[data-scheme], :root:not([data-scheme=light]) {{ {light} }} }}"
    )


def _declared(scheme: Scheme, name: str) -> str:
    colours = asdict(scheme)
    series = {f"s{at}": colour for at, colour in enumerate(colours.pop("series"))}
    return " ".join([f"color-scheme: {name};", *(f"--{key}: {value};" for key, value in {**colours, **series}.items())])
