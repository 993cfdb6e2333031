"""Tar and zip archives as members of a source."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import weakref
import zipfile
from contextlib import ExitStack
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from kvbench.errors import KvbenchError, TraceError, one_line
from kvbench.trace.formats.text import CHUNK_BYTES, Lines
from kvbench.trace.toldfile import ToldFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TAR_MARK, TAR_MARK_AT = b"ustar", 257
ZIP_MARKS = (b"PK\x03\x04", b"PK\x05\x06")
HEAD_BYTES = 512
"""A tar file says in its first block that it is one."""


def archive_files(file: Lines) -> list[Lines] | None:
    """The files in the archive ``file``; None if it is none. Raises TraceError for one that is damaged.

    They are read where they lie. A tar that is compressed, and an archive that comes from a pipe, is
    put into a temporary file first, which goes with its members.
    """
    head = file.head(HEAD_BYTES)
    if head.startswith(ZIP_MARKS):
        return list(_told(file.name, _zipped(file)))
    if head[TAR_MARK_AT:].startswith(TAR_MARK):
        return list(_told(file.name, _tarred(file)))
    return None


def _told(name: str, files: Iterator[Lines]) -> Iterator[Lines]:
    try:
        yield from files
    except KvbenchError:
        raise
    except Exception as error:
        # The readers of archives raise errors of a dozen kinds for bytes that are damaged.
        raise TraceError(f"{name}: is a damaged archive: {one_line(error)}") from error


def _tarred(file: Lines) -> Iterator[Lines]:
    archive = _kept_open(_seekable(file), lambda opened: tarfile.TarFile(fileobj=opened))
    for info in archive:
        if info.isfile():
            yield _member(file, info.name, partial(archive.extractfile, info))


def _zipped(file: Lines) -> Iterator[Lines]:
    archive = _kept_open(_seekable(file), zipfile.ZipFile)
    for info in archive.infolist():
        if not info.is_dir():
            yield _member(file, info.filename, partial(archive.open, info))


def _kept_open(opened: IO[bytes], reader: Callable[[IO[bytes]], Any]) -> Any:
    """An archive for whose life ``opened`` stays open."""
    try:
        archive = reader(opened)
    except BaseException:
        opened.close()
        raise
    weakref.finalize(archive, opened.close)
    return archive


def _member(file: Lines, name: str, opens: Any) -> Lines:
    return Lines(None, name=f"{file.name}!/{name}", opens=lambda: cast("IO[bytes]", ToldFile(opens)))


def _seekable(file: Lines) -> IO[bytes]:
    """The decompressed bytes of ``file``, to be read at any place."""
    if file.path is not None and file.path.is_file() and not file.compressed():
        return file.path.open("rb")
    with ExitStack() as until_whole:
        copy = until_whole.enter_context(tempfile.TemporaryFile())
        with file.open() as text:
            shutil.copyfileobj(text, copy, CHUNK_BYTES)
        until_whole.pop_all()
    copy.seek(0)
    return cast("IO[bytes]", copy)
