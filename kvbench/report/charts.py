"""Figures as files: what all commands need that draw."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvbench.atomic import atomic_path
from kvbench.errors import ConfigError, OutputError
from kvbench.report.page import Section, write_page
from kvbench.report.theme import LIGHT, config

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.report.figure import Figure

FORMATS = (".html", ".svg", ".png")
NEEDED = {"altair": "altair", "vl_convert": "vl-convert-python"}

SMALL = 400
"""Width in pixels of one of several charts in a picture."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sheet:
    """Figures that belong into one file: ``title`` says of what they are, ``manifest`` how that came about."""

    title: str
    figures: list[Figure]
    manifest: dict[str, Any] = field(default_factory=dict)


def plotter(path: str, sheet: Callable[[T], Sheet], *, force: bool, option: str = "--plot") -> Callable[[T], None]:
    """A function that draws what ``sheet`` makes of a result to ``path``. Raises ConfigError or OutputError at once
    where that cannot work."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"{option} {path}: the name must end in {', '.join(FORMATS)}")
    check_drawable(option)
    if Path(path).exists() and not force:
        raise OutputError(f"{path} exists; give --force to overwrite it")

    def draw(result: T) -> None:
        save(sheet(result), path, force=force)

    return draw


def missing_libraries() -> list[str]:
    """The libraries that draw and are not installed."""
    return [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]


def check_drawable(what: str) -> None:
    """Raise ConfigError where the libraries are missing that ``what`` draws with."""
    missing = missing_libraries()
    if missing:
        raise ConfigError(f"{what} needs {' and '.join(missing)}; install it with: pip install 'kvbench[report]'")


def save(sheet: Sheet, path: str | Path, *, force: bool) -> None:
    """Write the figures to ``path``, in the form that its name ends in; HTML works without a network."""
    import vl_convert

    if not sheet.figures:
        raise OutputError(f"{path} is not written: {sheet.title} has nothing to draw")
    suffix = Path(path).suffix.lower()
    if suffix == ".html":
        write_page(path, sheet.title, [Section("Charts", figures=sheet.figures)], manifest=sheet.manifest, force=force)
        return
    look = {**config(LIGHT), "background": LIGHT.ground, "padding": 16}
    with atomic_path(path, force) as temporary:
        if suffix == ".svg":
            temporary.write_text(vl_convert.vegalite_to_svg(_drawing(sheet), config=look), encoding="utf-8")
        else:
            temporary.write_bytes(vl_convert.vegalite_to_png(_drawing(sheet), config=look, scale=2))


def _drawing(sheet: Sheet) -> dict[str, Any]:
    """The specification of one picture: one figure, or several of them, two in a row."""
    if len(sheet.figures) == 1:
        figure = sheet.figures[0]
        return {**figure.drawing(), "title": {"text": figure.title, "subtitle": sheet.title}}
    drawn = [figure.drawing(SMALL) for figure in sheet.figures]
    return {
        "title": sheet.title,
        "columns": 2,
        "spacing": 40,
        "datasets": {name: rows for each in drawn for name, rows in each.pop("datasets").items()},
        "concat": drawn,
        "resolve": {"scale": {"color": "independent", "shape": "independent"}},
    }
