"""Lines of a text file, plain or compressed, as they should be and as they come."""

from __future__ import annotations

import bz2
import gzip
import io
import weakref
import zlib
from typing import IO, TYPE_CHECKING, Any, Self, cast

import pyarrow as pa
from blake3 import blake3

from kvbench.errors import TraceError, reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
BZIP2_MAGIC = b"BZh"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UTF8_MARK = b"\xef\xbb\xbf"
CHUNK_BYTES = 1 << 20


class Lines:
    """The lines of a file: (number from 1, bytes without line end), blank ones left out.

    Compression (gzip with any number of members, zstd, bzip2) is recognised by the first bytes, not
    by the name. A byte order mark, CRLF and a missing last line end make no difference.
    ``name`` is for messages. ``digest`` is that of the file's bytes as stored, once all are read.

    What ``head`` read comes again as lines, so a pipe can be looked at before it is read; it can
    be read once only.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path
        self.digest: str | None = None
        self._ready: _Opened | None = None
        self._spent = False

    def head(self, size: int = 65_536) -> bytes:
        """The first ``size`` bytes, decompressed, without a byte order mark. Raises TraceError."""
        self._ready = opened = self._opened()
        missing = size + len(UTF8_MARK) - len(opened.head)
        while missing > 0 and (piece := self._guarded_read(opened.text, missing)):
            opened.head += piece
            missing -= len(piece)
        return opened.head.removeprefix(UTF8_MARK)[:size]

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        with self._opened() as opened:
            self._ready = None
            number, rest = 0, b""
            for chunk in self._chunks(opened):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    number += 1
                    if line := line.strip():
                        yield number, line
            if rest := rest.strip():
                yield number + 1, rest
            opened.stored.drain()
            self.digest = f"blake3:{opened.stored.hasher.hexdigest()}"

    def _chunks(self, opened: _Opened) -> Iterator[bytes]:
        """All text, without a byte order mark."""
        while len(opened.head) < len(UTF8_MARK) and (piece := self._guarded_read(opened.text, CHUNK_BYTES)):
            opened.head += piece
        yield opened.head.removeprefix(UTF8_MARK)
        while chunk := self._guarded_read(opened.text, CHUNK_BYTES):
            yield chunk

    def _opened(self) -> _Opened:
        """The file at its start: the one that ``head`` has opened, or opened now."""
        if self._ready is not None:
            return self._ready
        try:
            if self._spent and not self.path.is_file():
                raise TraceError(f"{self.name}: can be read only once; save it to a file to read it again")
            self._spent = True
            return _Opened(self.path.open("rb"))
        except (OSError, ValueError) as error:
            raise TraceError(f"{self.name}: cannot be read: {reason(error)}") from error

    def _guarded_read(self, text: IO[bytes], size: int) -> bytes:
        try:
            return text.read(size)
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise TraceError(f"{self.name}: cannot be decompressed or read to its end: {error}") from error


class _Hashed(io.RawIOBase):
    """A binary file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.hasher = blake3()
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.hasher.update(data)
        return len(data)

    def drain(self) -> None:
        """Hash what a decompressor left unread."""
        while data := self._file.read(CHUNK_BYTES):
            self.hasher.update(data)


class _Opened:
    """A file and its decompressed text, closed together; ``head`` was read and waits to be used."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.stored = _Hashed(file)
        self.text = _decompressed(io.BufferedReader(self.stored, CHUNK_BYTES))
        weakref.finalize(self, file.close)
        self.head = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def is_compressed(head: bytes) -> bool:
    """Whether a file with these first bytes is compressed in a way that :class:`Lines` can undo."""
    return head.startswith((GZIP_MAGIC, BZIP2_MAGIC, ZSTD_MAGIC))


def _decompressed(file: io.BufferedReader) -> IO[bytes]:
    head = file.peek(4)[:4]
    if head.startswith(GZIP_MAGIC):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if head.startswith(BZIP2_MAGIC):
        return cast("IO[bytes]", bz2.BZ2File(file))
    if head.startswith(ZSTD_MAGIC):
        return cast("IO[bytes]", pa.CompressedInputStream(file, "zstd"))
    return cast("IO[bytes]", file)
