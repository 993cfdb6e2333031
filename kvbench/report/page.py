"""A page: one HTML file that holds all it needs, and asks nothing of any other place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.atomic import atomic_path
from kvbench.report.theme import colours_as_css, config, variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvbench.report.figure import Figure

NUMERIC = re.compile(r"[+\-–]?[\d.,]*\d( ?[^\d\s]+)?( a second)?|–")
"""Text of a cell that stands to the right, under the others of its column."""

ADDRESSES = re.compile(r"https?://(?!www\.w3\.org/|vega\.github\.io/schema/)[^\s\"'`)\\]+")
"""Links to its makers in the library that draws; the others are names, of XML and of a language of charts."""


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as it is shown: its cells are text. A ``folded`` one is opened by its reader."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Headline:
    """One number in large type: what it is, the number with its unit, and what it is to be read beside."""

    label: str
    value: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page, in the order in which it is read: headlines, text, figures, tables."""

    title: str
    text: list[str] = field(default_factory=list)
    tables: list[TableView] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    headlines: list[Headline] = field(default_factory=list)


def write_page(
    path: str | Path,
    title: str,
    sections: Sequence[Section],
    *,
    manifest: Mapping[str, Any],
    force: bool,
    lead: str = "",
) -> None:
    """Write the page to ``path``, whole or not at all. Names of figures must differ."""
    with atomic_path(path, force) as temporary:
        temporary.write_text(page(title, sections, manifest=manifest, lead=lead), encoding="utf-8")


def page(title: str, sections: Sequence[Section], *, manifest: Mapping[str, Any], lead: str = "") -> str:
    """The page as text: the same for the same arguments."""
    web = files("kvbench.report") / "web"
    figures = {figure.name: _embedded(figure) for section in sections for figure in section.figures}
    parts = {
        "title": escape(title),
        "lead": f'<p class="lead">{escape(lead)}</p>' if lead else "",
        "contents": _contents(sections),
        "sections": "\n".join(_section(at, section) for at, section in enumerate(sections)),
        "made": escape(f"Made by kvbench {manifest['kvbench']}." if "kvbench" in manifest else "Made by kvbench."),
        "colours": colours_as_css(),
        "style": (web / "page.css").read_text(encoding="utf-8"),
        "script": (web / "page.js").read_text(encoding="utf-8"),
        "library": _script(ADDRESSES.sub("about:blank", _library())),
        "figures": _json(figures),
        "config": _json(config(variables())),
        "manifest": _json(dict(manifest)),
    }
    return Template((web / "page.html").read_text(encoding="utf-8")).substitute(parts)


def _library() -> str:
    import vl_convert

    # Its stub does not know that the snippet has a default.
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg, unused-ignore]
    return bundle


def _embedded(figure: Figure) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in figure.rows for name in row))
    return {"spec": figure.spec(), "columns": names, "rows": [[row.get(name) for name in names] for row in figure.rows]}


def _json(value: Any) -> str:
    """JSON that may stand in a script element: it cannot end that."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def _script(text: str) -> str:
    """JavaScript that may stand in a script element: strings in it cannot end that."""
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _contents(sections: Sequence[Section]) -> str:
    if len(sections) < 2:
        return ""
    items = "".join(f'<li><a href="#s{at}">{escape(section.title)}</a></li>' for at, section in enumerate(sections))
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def _section(at: int, section: Section) -> str:
    parts = [f'<section id="s{at}" aria-labelledby="h{at}">', f'<h2 id="h{at}">{escape(section.title)}</h2>']
    if section.headlines:
        parts.append(f'<dl class="headlines">{"".join(map(_headline, section.headlines))}</dl>')
    parts += [f"<p>{escape(text)}</p>" for text in section.text]
    if section.figures:
        parts.append(f'<div class="figures">{"".join(map(_figure, section.figures))}</div>')
    parts += [_table(table) for table in section.tables]
    return "\n".join([*parts, "</section>"])


def _headline(headline: Headline) -> str:
    about = f'<dd class="about">{escape(headline.about)}</dd>' if headline.about else ""
    return f'<div><dt>{escape(headline.label)}</dt><dd class="value">{escape(headline.value)}</dd>{about}</div>'


def _figure(figure: Figure) -> str:
    name, title = escape(figure.name), escape(figure.title)
    note = f'<p class="note">{escape(figure.note)}</p>' if figure.note else ""
    rows = "1 row" if len(figure.rows) == 1 else f"{len(figure.rows):,} rows"
    return (
        f'<figure id="figure-{name}" aria-labelledby="t-{name}"><h3 id="t-{name}">{title}</h3>'
        f'<div class="chart" data-figure="{name}"></div>{note}'
        f'<details data-rows="{name}"><summary>Data of “{title}”: {rows}</summary>'
        f'<p><button type="button" data-download="{name}" aria-label="Download the data of {title} as CSV">'
        f'Download CSV</button></p><div class="scroll rows" tabindex="0" role="group" aria-label="Data of {title}">'
        "<table></table></div></details></figure>"
    )


def _table(table: TableView) -> str:
    numeric = [
        bool(table.rows) and all(NUMERIC.fullmatch(row[at]) for row in table.rows) for at in range(len(table.headers))
    ]
    kinds = [' class="number"' if each else "" for each in numeric]
    head = "".join(
        f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(table.headers, kinds, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{escape(text)}</td>" for text, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    title = escape(table.title)
    caption = "" if table.folded else f"<caption>{title}</caption>"
    shown = (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{title}"><table>{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )
    return f"<details><summary>{title}</summary>{shown}</details>" if table.folded else shown
