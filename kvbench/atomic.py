"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def atomic_path(path: str | Path, force: bool = False) -> Iterator[Path]:
    """A temporary sibling of ``path`` to write to; it becomes ``path`` when the block ends well.

    On any exception, Ctrl-C included, the temporary file is removed and ``path`` is as before.
    Raises OutputError when ``path`` exists and ``force`` is not set, or cannot be written.
    """
    target = Path(path)
    _refuse_existing(target, force)
    with _as_output_error(target):
        temporary = _create_sibling(target)
    try:
        yield temporary
        _refuse_existing(target, force)
        with _as_output_error(target):
            temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _refuse_existing(target: Path, force: bool) -> None:
    if target.is_dir():
        raise OutputError(f"{target} is a directory; give the name of a file")
    if not force and target.exists():
        raise OutputError(f"{target} exists; give --force to replace it")


def _create_sibling(target: Path) -> Path:
    """A new empty file next to ``target``, so that the rename stays on one file system."""
    attempt = 0
    while True:
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{attempt}.part")
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            attempt += 1
        else:
            return temporary


@contextmanager
def _as_output_error(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error
