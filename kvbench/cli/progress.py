"""Progress of long runs: what is done, its rate and time left, on standard error, for a terminal only."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUIET_SECONDS = 1.0
"""A run shorter than this shows no bar."""


ROWS = "{task.completed:,.0f} rows, {task.fields[rate]:,.0f}/s"
CELLS = "{task.completed:,.0f} of {task.total:,.0f} cells"


@contextmanager
def row_progress(label: str, text: str = ROWS) -> Iterator[Callable[[int, int | None], None] | None]:
    """A callable that takes rows done and rows in all (or None), or what else ``text`` shows; None when nobody
    watches."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(label, text)
    try:
        yield bar.update
    finally:
        bar.close()


class _Bar:
    def __init__(self, label: str, text: str) -> None:
        self._label = label
        self._text = text
        self._started = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def update(self, done: int, total: int | None) -> None:
        if self._progress is None:
            if time.monotonic() - self._started < QUIET_SECONDS:
                return
            self._start(done, total)
        elapsed = max(time.monotonic() - self._started, 1e-9)
        self._progress.update(self._task, completed=done, total=total, rate=done / elapsed)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _start(self, done: int, total: int | None) -> None:
        # rich costs a tenth of a second to import; a short run does without it.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn(self._label),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn(self._text),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task(self._label, completed=done, total=total, rate=0.0)
