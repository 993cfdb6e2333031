"""The bytes and the lines of one file of a trace, plain or compressed, as they should be and as they come."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from blake3 import blake3

from kvbench.errors import TraceError, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"
BZIP2_MAGIC = b"BZh"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UTF8_MARK = b"\xef\xbb\xbf"
NEW_LINE = ord("\n")
CHUNK_BYTES = 1 << 22
COUNTED_BYTES = 1 << 17
"""Line ends are counted in pieces of this size, which stay in the cache."""
HEAD_BYTES = 65_536
MAX_LINE_BYTES = 1 << 28
"""A longer line is no row of a trace; it would have to be held in memory whole."""


class Lines:
    """One member of a source: a file, a file of an archive or of a remote store, a pipe.

    Iterating gives its lines: (number from 1, bytes without line end), blank ones left out; a byte
    order mark, CRLF and a missing last line end make no difference. :meth:`open` gives its bytes.
    Compression (gzip with any number of members, zstd, bzip2) is recognised by the first bytes, not
    by the name, and undone.

    ``name`` is for messages. ``path`` is the file that holds it, None where there is none.
    ``digest`` is that of the bytes as stored, once all are read.

    ``opens`` opens the bytes as stored, instead of ``path``; it may raise OSError and ValueError.
    What ``head`` read comes again, so a pipe can be looked at before it is read; a pipe can be read
    once only, and so can what ``opens`` gives if ``once``.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        name: str | None = None,
        opens: Callable[[], IO[bytes]] | None = None,
        once: bool = False,
    ) -> None:
        self.name = printable(str(path) if name is None else name)
        self.path = path
        self._opens = opens
        self._once = once
        self._text: _Text | None = None
        self._digest: str | None = None
        self._spent = False

    @property
    def digest(self) -> str | None:
        return self._digest if self._text is None else self._text.digest

    def head(self, size: int = HEAD_BYTES) -> bytes:
        """The first ``size`` bytes, decompressed, without a byte order mark. Raises TraceError."""
        text = self._at_start()
        head = text.peek(size + len(UTF8_MARK)).removeprefix(UTF8_MARK)[:size]
        if self._can_open_again():
            text.close()
            self._text = None
        return head

    def compressed(self) -> bool:
        """Whether the member is stored compressed. Raises TraceError."""
        text = self._at_start()
        compressed = is_compressed(text.stored_head())
        if self._can_open_again():
            text.close()
            self._text = None
        return compressed

    def open(self) -> IO[bytes]:
        """The bytes of the member, decompressed, from first to last, a byte order mark included.

        Reading raises TraceError where they cannot be decompressed or read to their end.
        """
        return cast("IO[bytes]", io.BufferedReader(self._taken(), CHUNK_BYTES))

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Whole lines, about :data:`CHUNK_BYTES` at a time: the number of the first, and the bytes of all.

        Line ends are there but for the last line's, which may be missing; a byte order mark is not.
        """
        with self._taken() as text:
            text.peek(len(UTF8_MARK))
            text.skip(UTF8_MARK)
            number = 1
            rest: list[bytes] = []
            length = 0
            while chunk := text.take(CHUNK_BYTES):
                end = chunk.rfind(b"\n") + 1
                if end:
                    whole = b"".join([*rest, memoryview(chunk)[:end]])
                    rest, length = [], 0
                    yield number, whole
                    number += _line_ends(whole)
                rest.append(chunk[end:])
                length += len(chunk) - end
                if length > MAX_LINE_BYTES:
                    raise TraceError(f"{self.name}, row {number}: the line is longer than {MAX_LINE_BYTES:,} bytes")
            if length:
                yield number, b"".join(rest)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        for first, chunk in self.chunks():
            yield from numbered(first, chunk)

    def finish(self) -> str:
        """The digest of the member, of which the rest is read now if some of it was left. Raises TraceError."""
        if self.digest is None:
            text = self._at_start() if self._text is None or self._text.closed else self._text
            text.finish()
        self._digest = self.digest
        if self._text is not None:
            self._text.close()
            self._text = None
        return self._digest or ""

    def _taken(self) -> _Text:
        text = self._at_start()
        text.taken = True
        return text

    def _at_start(self) -> _Text:
        """The member at its start: as ``head`` has left it, or opened now."""
        if self._text is not None and not self._text.taken:
            return self._text
        if self._spent and not self._can_open_again():
            raise TraceError(f"{self.name}: can be read only once; save it to a file to read it again")
        self._spent = True
        try:
            file = self._opens() if self._opens is not None else cast("Path", self.path).open("rb")
        except (OSError, ValueError) as error:
            raise TraceError(f"{self.name}: cannot be read: {reason(error)}") from error
        self._text = _Text(self.name, file)
        return self._text

    def _can_open_again(self) -> bool:
        if self._opens is not None:
            return not self._once
        return self.path is not None and self.path.is_file()


class _Hashed(io.RawIOBase):
    """A binary file whose bytes are hashed as they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.hasher = blake3()
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]  # of whatever kind, files have it
        self.hasher.update(memoryview(buffer)[:count])
        return cast("int", count)

    def drain(self) -> None:
        """Hash what a decompressor left unread."""
        while data := self._file.read(CHUNK_BYTES):
            self.hasher.update(data)


class _Text(io.RawIOBase):
    """The decompressed bytes of a stored file, which is closed with them; ``digest`` is there at their end."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self.name = name
        self.taken = False
        self.digest: str | None = None
        self._file = file
        self._stored = _Hashed(file)
        self._buffered = io.BufferedReader(self._stored, CHUNK_BYTES)
        self._text: IO[bytes] | None = None
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def take(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        if self._waiting:
            data, self._waiting = self._waiting[:size], self._waiting[size:]
            return data
        data = self._guarded_read(size)
        if not data and size:
            self.finish()
        return data

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, or what there is, to be read again."""
        while len(self._waiting) < size and (piece := self._guarded_read(size - len(self._waiting))):
            self._waiting += piece
        return self._waiting[:size]

    def skip(self, prefix: bytes) -> None:
        self._waiting = self._waiting.removeprefix(prefix)

    def finish(self) -> str:
        """Read what is left of the stored bytes, for the digest."""
        if self.digest is None:
            self._told(self._stored.drain)
            self.digest = f"blake3:{self._stored.hasher.hexdigest()}"
        return self.digest

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    def stored_head(self) -> bytes:
        """The first few bytes as they are stored."""
        return cast("bytes", self._told(lambda: self._buffered.peek(4)[:4]))

    def _guarded_read(self, size: int) -> bytes:
        return cast("bytes", self._told(lambda: self._decompressed().read(size)))

    def _decompressed(self) -> IO[bytes]:
        if self._text is None:
            self._text = _decompressed(cast("io.BufferedReader", self._buffered))
        return self._text

    def _told(self, reads: Callable[[], Any]) -> Any:
        try:
            return reads()
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise TraceError(f"{self.name}: cannot be decompressed or read to its end: {error}") from error


def printable(name: str) -> str:
    """The name of a file as text: bytes that are no UTF-8 are written out."""
    return name.encode("utf-8", "backslashreplace").decode()


def numbered(first: int, chunk: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of ``chunk``, stripped, blank ones left out, numbered from ``first``."""
    for number, line in enumerate(chunk.split(b"\n"), first):
        if line := line.strip():
            yield number, line


def _line_ends(text: bytes) -> int:
    values = np.frombuffer(text, np.uint8)
    starts = range(0, len(values), COUNTED_BYTES)
    return sum(int(np.count_nonzero(values[start : start + COUNTED_BYTES] == NEW_LINE)) for start in starts)


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
