"""What a source is made of: the files of a folder, a glob, an archive, a remote store; one file; a pipe.

Members come in the order of their names, in which numbers count as numbers, whatever order they
were given or found in.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from kvbench.errors import TraceError, reason
from kvbench.trace.archives import archive_files
from kvbench.trace.formats.text import Lines, printable
from kvbench.trace.remote import is_remote, remote_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    ImportSource: TypeAlias = str | Path | Lines

STDIN = "-"
ABOUT = re.compile(r"(licen[cs]e|readme|notice|copying|copyright|changelog|manifest|authors)\b.*", re.IGNORECASE)
"""Names of files that speak of a trace and hold no rows of it."""


class Members:
    """The members of one or several sources, as :class:`Lines`.

    ``sources`` are paths of files and folders, globs, remote addresses (``s3://…``, ``https://…``,
    ``hf://…``), ``-`` for standard input, and :class:`Lines`. Archives (tar, plain or compressed, and
    zip) are recognised by their first bytes and opened. In folders and archives, hidden files and
    licences, readmes and the like are passed over.

    ``title`` names the sources in messages and metadata, ``paths`` are the local files that are read,
    ``passed_over`` the names of those that are not.
    Raises TraceError for a source that cannot be read, has no file, or is given twice.
    """

    def __init__(self, sources: ImportSource | Sequence[ImportSource]) -> None:
        given = [sources] if isinstance(sources, (str, Path, Lines)) else list(sources)
        if not given:
            raise TraceError("no source is given")
        self.passed_over: list[str] = []
        self.paths: list[Path] = []
        found = [member for source in given for member in self._expanded(source)]
        self.members = sorted(found, key=lambda member: natural_order(member.name))
        names = [member.name for member in self.members]
        twice = next((name for name, after in pairwise(names) if name == after), None)
        if twice is not None:
            raise TraceError(f"{twice}: is given twice")
        self.name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
        first = given[0].name if isinstance(given[0], Lines) else str(given[0])
        self.title = base_name(printable(first)) + (f" and {len(given) - 1:,} more" if len(given) > 1 else "")

    def __iter__(self) -> Iterator[Lines]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def _expanded(self, source: ImportSource) -> Iterator[Lines]:
        """The members of one source. Raises TraceError where there is none."""
        if isinstance(source, Lines):
            self._note_path(source)
            yield source
            return
        several, files = _files(str(source))
        count = 0
        for file in files:
            if several and _is_about(file.name):
                self.passed_over.append(file.name)
                continue
            self._note_path(file)
            inside = archive_files(file)
            for member in [file] if inside is None else inside:
                if inside is not None and _is_about(member.name):
                    self.passed_over.append(member.name)
                    continue
                count += 1
                yield member
        if count == 0:
            raise TraceError(f"{source}: has no file that could be a trace")

    def _note_path(self, file: Lines) -> None:
        if file.path is not None:
            self.paths.append(file.path)


def natural_order(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key that sorts ``shard-2`` before ``shard-10``."""
    parts = re.split(r"(\d+)", name)
    numbers = [part.lstrip("0") if at % 2 else part for at, part in enumerate(parts)]
    return [(len(part) if at % 2 else 0, part) for at, part in enumerate(numbers)], name


def base_name(source: str) -> str:
    """The last part of a path or an address."""
    return source.rstrip("/").rsplit("/", 1)[-1]


def _is_about(name: str) -> bool:
    last = base_name(name)
    return last.startswith(".") or "__MACOSX" in name or ABOUT.fullmatch(last) is not None


def _files(source: str) -> tuple[bool, list[Lines]]:
    """Whether ``source`` stands for several files, and these."""
    if source == STDIN:
        return False, [Lines(None, name=STDIN, opens=_open_stdin, once=True)]
    if is_remote(source):
        return remote_files(source)
    path = Path(source)
    try:
        if path.is_dir():
            inside = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
            return True, [Lines(file) for file in inside if file.is_file()]
        if glob.has_magic(source) and not os.path.lexists(path):
            return True, [Lines(Path(name)) for name in glob.glob(source, recursive=True) if Path(name).is_file()]
    except (OSError, ValueError) as error:
        raise TraceError(f"{source}: cannot be read: {reason(error)}") from error
    return False, [Lines(path)]


def _open_stdin() -> IO[bytes]:
    if sys.stdin is None:
        raise OSError("standard input is closed")
    try:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    except (OSError, ValueError):
        # Something else stands in for it, and has no descriptor.
        return sys.stdin.buffer
