"""Writes traces: Arrow IPC (zstd) or Parquet (zstd), whole or not at all, the same bytes for the same rows."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.atomic import atomic_path
from kvbench.errors import OutputError
from kvbench.trace.columns import list_parts, numbers, text_parts, validity
from kvbench.trace.recut import Recutter
from kvbench.trace.schema import is_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from kvbench.trace.columns import Int64s
    from kvbench.trace.schema import TraceFacts

SUFFIXES = (".arrow", ".parquet")


class TraceWriter:
    """A context manager that writes version 1 batches to ``path``; by its suffix IPC or Parquet.

    The file appears under its name when the block ends well, and not at all otherwise. Raises
    OutputError when the suffix is another, when ``path`` exists (unless ``force``), and when it
    cannot be written. ``metadata`` goes into the file beside the facts.
    """

    def __init__(
        self,
        path: str | Path,
        schema: pa.Schema,
        facts: TraceFacts,
        *,
        metadata: Mapping[bytes, bytes] | None = None,
        force: bool = False,
    ) -> None:
        self._path = check_output(path)
        self._schema = schema.with_metadata({**facts.to_metadata(), **(metadata or {})})
        self._force = force
        self._cutter = Recutter()
        self._sink: Any = None
        self._context: AbstractContextManager[None] = self._opened()

    def __enter__(self) -> Self:
        self._context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, trace)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of ``batch``, which has the writer's columns."""
        for ready in self._cutter.push(batch):
            self._put(ready)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with atomic_path(self._path, self._force) as temporary:
            with self._told():
                file = pa.OSFile(str(temporary), "wb")
                self._sink = self._open_sink(file)
            try:
                yield
                for ready in self._cutter.flush():
                    self._put(ready)
            finally:
                with self._told():
                    self._sink.close()
                    file.close()

    def _open_sink(self, file: pa.NativeFile) -> Any:
        if self._path.suffix == ".parquet":
            text = [field.name for field in self._schema if pa.types.is_string(field.type)]
            return pq.ParquetWriter(file, self._schema, compression="zstd", use_dictionary=text)
        return pa.ipc.new_file(file, self._schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def _put(self, batch: pa.RecordBatch) -> None:
        columns = [_exact(column) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        with self._told():
            self._sink.write_batch(batch)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written: {error}") from error


def check_output(path: str | Path) -> Path:
    """``path``, if its suffix is one that a trace can be written to. Raises OutputError otherwise."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise OutputError(f"{path}: a trace is written as {' or '.join(SUFFIXES)}, and the name says which")
    return path


def _exact(column: pa.Array) -> pa.Array:
    """The column with zeros and empty lists under its nulls, in buffers that hold nothing but its rows.

    Arrow leaves open what lies under a null and writes what follows a slice in its buffer as
    padding, so equal columns could become different bytes.
    """
    kind, rows = column.type, len(column)
    bitmap = pa.py_buffer(np.packbits(validity(column), bitorder="little")) if column.null_count else None
    if is_list(kind):
        parts = list_parts(column)
        values = pa.array(numbers(parts.values), kind.value_type)
        return pa.Array.from_buffers(kind, rows, [bitmap, _offsets(parts.offsets)], children=[values])
    if pa.types.is_string(kind):
        lengths, text = text_parts(column)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return pa.Array.from_buffers(kind, rows, [bitmap, _offsets(offsets), pa.py_buffer(text)])
    return pa.Array.from_buffers(kind, rows, [bitmap, pa.py_buffer(np.ascontiguousarray(numbers(column)))])


def _offsets(offsets: Int64s) -> pa.Buffer:
    return pa.py_buffer(offsets.astype(np.int32))
