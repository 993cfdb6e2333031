"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import OutputError, reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME_CHARACTERS = 50
"""Of a file's name, so many go into that of its temporary sibling, which must not become too long."""


@contextmanager
def atomic_path(path: str | Path, force: bool = False) -> Iterator[Path]:
    """A temporary sibling of ``path`` to write to; it becomes ``path`` when the block ends well.

    A symbolic link stays, and the file that it points to is written. On any exception, Ctrl-C
    included, the temporary file is removed and ``path`` is as before. Raises OutputError when
    ``path`` exists and ``force`` is not set, is no regular file, or cannot be written.
    """
    with atomic_paths([path], force) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(paths: Sequence[str | Path], force: bool = False) -> Iterator[list[Path]]:
    """A temporary sibling of each of ``paths``, as :func:`atomic_path`; none takes its name before all are whole."""
    with ExitStack() as stack:
        targets = [_writable_target(Path(path), force) for path in paths]
        temporaries = [stack.enter_context(_sibling(target)) for target in targets]
        yield temporaries
        for path in paths:
            _writable_target(Path(path), force)
        for temporary, target in zip(temporaries, targets, strict=True):
            with _as_output_error(target):
                temporary.replace(target)


def check_writable(path: str | Path, force: bool = False) -> None:
    """Raise the OutputError that :func:`atomic_path` would raise for ``path``: before the work, not after it."""
    with _sibling(_writable_target(Path(path), force)):
        pass


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two paths name one file, however they are spelled; neither needs to exist."""
    with suppress(OSError, ValueError):
        if os.path.realpath(one) == os.path.realpath(other):
            return True
        return os.path.samefile(one, other)
    return False


def _writable_target(path: Path, force: bool) -> Path:
    """The file that ``path`` stands for, if it may be written."""
    with _as_output_error(path):
        target = Path(os.path.realpath(path))
        exists = os.path.lexists(target)
        if target.is_dir():
            raise OutputError(f"{path} is a directory; give the name of a file")
        if exists and not target.is_file():
            raise OutputError(f"{path} is no regular file, and is not replaced; give another name")
        if exists and not force:
            raise OutputError(f"{path} exists; give --force to replace it")
        return target


@contextmanager
def _sibling(target: Path) -> Iterator[Path]:
    """A new empty file next to ``target``; removed at the end if it still has its name."""
    with _as_output_error(target):
        temporary = _create_sibling(target)
    try:
        yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


def _create_sibling(target: Path) -> Path:
    """A new empty file next to ``target``, so that the rename stays on one file system."""
    attempt = 0
    while True:
        temporary = target.with_name(f".{target.name[:NAME_CHARACTERS]}.{os.getpid()}-{attempt}.part")
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            attempt += 1
        else:
            return temporary


@contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise OutputError(f"{path} cannot be written: {reason(error)}") from error
