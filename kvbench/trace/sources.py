"""Where the record batches of a trace come from, before they are checked.

A file is recognised by its first bytes, not by its name: Arrow IPC file (memory-mapped), Arrow IPC
stream, Parquet. Everything that Arrow says against a file becomes a one-line TraceError.
The bytes of a file that are in memory already (:class:`TraceBytes`) are read as the file is.
"""

from __future__ import annotations

import io
import mmap
import os
import stat
import sys
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.errors import TraceError, reason
from kvbench.trace.formats.text import Lines, is_compressed
from kvbench.trace.schema import COLUMN_BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

IPC_FILE_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"
CONTINUATION = b"\xff\xff\xff\xff"
END_OF_STREAM = CONTINUATION + b"\0\0\0\0"
FILE_PREFIX_BYTES = 8
"""An IPC file is these bytes (magic and padding), an IPC stream, and an index that a stream reader can ignore."""

PARQUET_ROWS = 1024
"""Rows decoded at a time: few, because a Parquet file does not say in time how long its lists are."""


@dataclass(frozen=True, slots=True)
class TraceBytes:
    """A trace file that is in memory: ``name`` is that of the file, for messages, and ``data`` a
    :class:`pyarrow.Buffer` with all of its bytes, which are not copied."""

    name: str
    data: pa.Buffer


class Source(Protocol):
    """Record batches with one schema.

    ``rewindable`` says whether ``batches`` can be called again for the same rows.
    """

    schema: pa.Schema
    rewindable: bool

    def batches(self) -> Iterator[pa.RecordBatch]: ...

    def rows(self) -> int | None:
        """The number of rows, where it is known without reading them."""


def open_source(source: object) -> tuple[str, Source]:
    """A name for messages and the batches of ``source``: a path, ``-``, a file open or in memory, or Arrow data."""
    if isinstance(source, pa.Table):
        return "table", TableSource(source)
    if isinstance(source, pa.RecordBatchReader):
        return "batches", ReaderSource(source, "batches")
    if source == "-":
        return "-", _open_stdin()
    if isinstance(source, (str, Path)):
        return str(source), open_path(Path(source))
    if isinstance(source, TraceBytes):
        return source.name, _open_bytes(source)
    if hasattr(source, "read"):
        name = getattr(source, "name", None)
        name = name if isinstance(name, str) else "stream"
        return name, open_stream(source, name)
    raise TypeError(
        f"a trace is a path, '-', a binary file, TraceBytes, a pyarrow Table or RecordBatchReader, not {source!r}"
    )


def open_path(path: Path) -> Source:
    """The batches of a file of any of the three kinds, or of a named pipe with a stream."""
    name = str(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise TraceError(f"{name}: is a directory; give one trace file")
        # What the system makes up as it is read, in /proc for one, is a regular file without a size.
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            return _open_pipe(path)
        mapped = _map_file(path)
    except (OSError, ValueError) as error:
        raise TraceError(f"{name}: cannot be read: {reason(error)}") from error
    # Parquet is read, not mapped: the pages of a map that were read stay in memory.
    return _open_whole(name, mapped, path, Lines(path))


def _open_bytes(source: TraceBytes) -> Source:
    if not source.data.size:
        raise TraceError(f"{source.name}: is empty")
    data = memoryview(source.data)
    return _open_whole(source.name, data, source.data, Lines(None, name=source.name, opens=lambda: io.BytesIO(data)))


def _open_whole(name: str, data: mmap.mmap | memoryview, parquet: Path | pa.Buffer, lines: Lines) -> Source:
    """The batches of a file with the bytes ``data``; from ``parquet`` if it is one of these."""
    head = bytes(data[:FILE_PREFIX_BYTES])
    if head.startswith(PARQUET_MAGIC):
        return ParquetSource(parquet, name)
    if head.startswith(IPC_FILE_MAGIC):
        return IpcFileSource(data, name)
    if head.startswith(CONTINUATION):
        return StreamFileSource(data, name)
    raise _not_a_trace(name, lines.head(FILE_PREFIX_BYTES) if is_compressed(head) else head)


def _open_pipe(path: Path) -> Source:
    return _owned(path.open("rb", buffering=0), str(path))


def _open_stdin() -> Source:
    if sys.stdin is None:
        raise TraceError("-: standard input is closed")
    try:
        descriptor = os.dup(sys.stdin.fileno())
    except (OSError, ValueError):
        # Something else stands in for it, and has no descriptor.
        return open_stream(sys.stdin.buffer, "-")
    return _owned(os.fdopen(descriptor, "rb", buffering=0), "-")


def _owned(file: IO[bytes], name: str) -> Source:
    """The batches of ``file``, which is closed with them. It is not buffered: a thread that waits inside of
    a buffered file keeps its lock, and the interpreter cannot end then."""
    try:
        source = open_stream(file, name)
    except BaseException:
        file.close()
        raise
    weakref.finalize(source, file.close)
    return source


def open_stream(file: Any, name: str) -> Source:
    """The batches of an Arrow IPC stream; an IPC file that is piped in is read as one, too."""
    head = b""
    while len(head) < FILE_PREFIX_BYTES:
        piece = file.read(FILE_PREFIX_BYTES - len(head))
        if not piece:
            break
        head += piece
    if not head:
        raise TraceError(f"{name}: is empty")
    if head.startswith(PARQUET_MAGIC):
        raise TraceError(f"{name}: Parquet cannot be read from a pipe; give the file's path")
    if head.startswith(IPC_FILE_MAGIC):
        head = b""
    elif not head.startswith(CONTINUATION):
        raise _not_a_trace(name, head)
    tap = _Tap(file, head)
    with reading(name):
        return ReaderSource(pa.ipc.open_stream(tap), name, tap)


def is_trace(head: bytes) -> bool:
    """Whether a file with these first bytes is of a kind that a trace can be read from."""
    return head.startswith((IPC_FILE_MAGIC, CONTINUATION, PARQUET_MAGIC))


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns what Arrow raises about the file ``name`` into a TraceError of one line."""
    try:
        yield
    except TraceError:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, TypeError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise TraceError(f"{name}: is cut short or damaged: {said}") from error


class TableSource:
    """A table in memory."""

    rewindable = True

    def __init__(self, table: pa.Table) -> None:
        self.schema = table.schema
        self._table = table

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches()

    def rows(self) -> int | None:
        return int(self._table.num_rows)


class ReaderSource:
    """A RecordBatchReader: an IPC stream, or batches that the caller makes. Can be read once."""

    rewindable = False

    def __init__(self, reader: Any, name: str, tap: _Tap | None = None) -> None:
        self.schema = reader.schema
        self._reader = reader
        self._name = name
        self._tap = tap

    def batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            with reading(self._name):
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    break
            yield batch
        if self._tap is not None:
            _require_end(self._tap.last, self._name)

    def rows(self) -> int | None:
        return None


class StreamFileSource:
    """An IPC stream in a file that is memory-mapped or in memory."""

    rewindable = True

    def __init__(self, data: mmap.mmap | memoryview, name: str) -> None:
        self._data = data
        self._name = name
        with reading(name):
            self.schema = pa.ipc.open_stream(pa.py_buffer(data)).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        file = pa.BufferReader(pa.py_buffer(self._data))
        with reading(self._name):
            reader = pa.ipc.open_stream(file)
        while True:
            _forget_pages(self._data)
            with reading(self._name):
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
            yield batch
        end = file.tell()
        _require_end(bytes(self._data[max(0, end - len(END_OF_STREAM)) : end]), self._name)

    def rows(self) -> int | None:
        return None


class IpcFileSource:
    """An IPC file that is memory-mapped or in memory; batches that are not compressed are views of it."""

    rewindable = True

    def __init__(self, data: mmap.mmap | memoryview, name: str) -> None:
        self._data = data
        self._name = name
        with reading(name):
            self._reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data)))
            self.schema = self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        for index in range(self._reader.num_record_batches):
            _forget_pages(self._data)
            with reading(self._name):
                batch = self._reader.get_batch(index)
            yield batch

    def rows(self) -> int | None:
        count_rows = getattr(self._reader, "count_rows", None)  # absent in old versions of pyarrow
        if count_rows is None:
            return None
        with reading(self._name):
            return int(count_rows())


class ParquetSource:
    """A Parquet file, read in slices of row groups."""

    rewindable = True

    def __init__(self, file: Path | pa.Buffer, name: str) -> None:
        self._file = file
        self._name = name
        with reading(name), self._open() as opened:
            self.schema = opened.schema_arrow
            self._rows = int(opened.metadata.num_rows)

    def _open(self) -> pq.ParquetFile:
        file = self._file if isinstance(self._file, Path) else pa.BufferReader(self._file)
        return pq.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        with reading(self._name):
            file = self._open()
        with file:
            columns = [name for name in self.schema.names if name in COLUMN_BY_NAME]
            batches = file.iter_batches(batch_size=PARQUET_ROWS, columns=columns)
            while True:
                with reading(self._name):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

    def rows(self) -> int | None:
        return self._rows


class _Tap:
    """A binary file that can be read on after its head was looked at, and knows its last bytes."""

    closed = False

    def __init__(self, file: IO[bytes], head: bytes) -> None:
        self._file = file
        self._head = head
        self.last = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._head[:size] if size >= 0 else self._head
        self._head = self._head[len(data) :]
        while size < 0 or len(data) < size:
            piece = self._file.read(size - len(data) if size >= 0 else -1)
            if not piece:
                break
            data = data + piece if data else piece
        self.last = (self.last + data[-len(END_OF_STREAM) :])[-len(END_OF_STREAM) :]
        return data

    def close(self) -> None:
        """The file belongs to whoever opened it."""


def _map_file(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _forget_pages(data: mmap.mmap | memoryview) -> None:
    """Lets go of the pages of a map that were read so far, so that resident memory does not grow with the file.

    Batches still in use stay valid: a page that is touched again comes back from the page cache.
    """
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)


def _require_end(last: bytes, name: str) -> None:
    # A stream that breaks off between two batches looks to Arrow like one that ended.
    if last != END_OF_STREAM:
        raise TraceError(f"{name}: is cut short or damaged: the stream has no end-of-stream mark")


def _not_a_trace(name: str, head: bytes) -> TraceError:
    """The error for a file that starts with ``head``, decompressed if it can be."""
    if is_trace(head):
        return TraceError(f"{name}: is compressed as a whole; decompress it (Arrow and Parquet compress inside)")
    if is_compressed(head):
        return TraceError(
            f"{name}: is compressed; decompress it if it is an Arrow stream, or convert it with "
            "`kvbench trace import FILE -o OUTPUT.arrow`"
        )
    file = "FILE" if name == "-" else name
    return TraceError(
        f"{name}: is neither an Arrow nor a Parquet file; convert it with `kvbench trace import {file} -o OUTPUT.arrow`"
    )
