"""Lines of a text file, plain or compressed, as they should be and as they come."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
from blake3 import blake3

from kvbench.errors import TraceError

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
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.digest: str | None = None
        self._path = path

    def head(self, size: int = 65_536) -> bytes:
        """The first ``size`` bytes, decompressed, without a byte order mark. Raises TraceError."""
        with self._opened() as (_, text):
            return self._guarded_read(text, size + len(UTF8_MARK)).removeprefix(UTF8_MARK)[:size]

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        with self._opened() as (stored, text):
            number, rest = 0, b""
            first = True
            while chunk := self._guarded_read(text, CHUNK_BYTES):
                if first:
                    chunk, first = chunk.removeprefix(UTF8_MARK), False
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    number += 1
                    if line := line.strip():
                        yield number, line
            if rest := rest.strip():
                yield number + 1, rest
            stored.drain()
            self.digest = f"blake3:{stored.hasher.hexdigest()}"

    def _opened(self) -> _Opened:
        try:
            return _Opened(self._path.open("rb"))
        except OSError as error:
            raise TraceError(f"{self.name}: cannot be read: {error.strerror or error}") from error

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
    """A file and its decompressed text, closed together."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.stored = _Hashed(file)
        self.text = _decompressed(io.BufferedReader(self.stored, CHUNK_BYTES))

    def __enter__(self) -> tuple[_Hashed, IO[bytes]]:
        return self.stored, self.text

    def __exit__(self, *error: object) -> None:
        self._file.close()


def _decompressed(file: io.BufferedReader) -> IO[bytes]:
    head = file.peek(4)[:4]
    if head.startswith(GZIP_MAGIC):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if head.startswith(BZIP2_MAGIC):
        return cast("IO[bytes]", bz2.BZ2File(file))
    if head.startswith(ZSTD_MAGIC):
        return cast("IO[bytes]", pa.CompressedInputStream(file, "zstd"))
    return cast("IO[bytes]", file)
