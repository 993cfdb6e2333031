"""Charts as files: what all of them need."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvbench.atomic import atomic_path
from kvbench.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS = (".html", ".svg", ".png")
NEEDED = {"altair": "altair", "vl_convert": "vl-convert-python"}

T = TypeVar("T")


def plotter(path: str, chart: Callable[[T], Any], *, force: bool) -> Callable[[T], None]:
    """A function that draws what ``chart`` makes of a result to ``path``. Raises ConfigError or OutputError at once
    where that cannot work."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"--plot {path}: the name must end in {', '.join(FORMATS)}")
    missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(f"--plot needs {' and '.join(missing)}; install it with: pip install 'kvbench[report]'")
    if Path(path).exists() and not force:
        raise OutputError(f"{path} exists; give --force to overwrite it")

    def draw(result: T) -> None:
        with atomic_path(path, force) as temporary:
            save(chart(result), Path(temporary), suffix)

    return draw


def save(drawing: Any, path: Path, suffix: str) -> None:
    """Write a chart; HTML carries all it needs and works without a network."""
    if suffix == ".html":
        drawing.save(str(path), format="html", inline=True)
    else:
        drawing.save(str(path), format=suffix[1:], **({"scale_factor": 2} if suffix == ".png" else {}))
