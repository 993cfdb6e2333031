"""Cells for the tests, and a look at the processes that run them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvbench.sweeps.executor import CellOutcome, CellTask

CHAT = Path(__file__).parents[3] / "traces" / "chat.arrow"
PATIENCE_S = 30.0


class OnlyHere:
    """What workers cannot read: they have not got this module."""


def tasks(count: int, trace: Path | str = CHAT, *, autoload: bool = False) -> list[CellTask]:
    """So many capacities of a trace."""
    return [
        CellTask(number=at, settings={"trace": str(trace), "capacity": str(10 + at)}, autoload=autoload)
        for at in range(count)
    ]


def in_order(outcomes: Iterable[CellOutcome]) -> list[CellOutcome]:
    """By number."""
    return sorted(outcomes, key=lambda outcome: outcome.number)


def wait_for(true: Callable[[], Any]) -> Any:
    """What ``true`` gives, as soon as that is something."""
    until = time.monotonic() + PATIENCE_S
    while not (found := true()):
        assert time.monotonic() < until, "it does not come to that"
        time.sleep(0.01)
    return found


def reader(pipe: Path, besides: set[int]) -> int:
    """A process other than these that has opened ``pipe``, waited for."""
    found: set[int] = wait_for(lambda: _openers(pipe) - besides)
    return found.pop()


def commands() -> list[str]:
    """The command lines of all processes."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(file.read_text(errors="replace"))
    return found


def _openers(pipe: Path) -> set[int]:
    found = set()
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has ended, or closed the file
            if os.readlink(opened) == str(pipe):
                found.add(int(opened.parts[2]))
    return found


def install(folder: Path, name: str, version: str, points: str = "") -> None:
    """Puts a distribution into a folder as pip would, without its modules."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)
