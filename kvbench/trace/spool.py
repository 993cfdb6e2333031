"""Rows that wait to be sorted: in memory while they are few, then on disk."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from kvbench.errors import OutputError, reason
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

RUN_BYTES = 64 << 20
"""So much is held in memory; what is more goes to disk in sorted runs of this size."""

PIECE_BYTES = 1 << 20
"""Of a run, so much is read at a time when runs are merged."""


@dataclass(slots=True)
class _Run:
    """Rows in order of arrival on disk: where each piece starts, and its first arrival."""

    offsets: list[int] = field(default_factory=list)
    first_ns: list[int] = field(default_factory=list)


class Spool:
    """A context manager that takes batches in file order and gives them back by arrival, ties in file order.

    Batches may differ in their columns; ``columns`` are those of all, and what is given back has
    them, null where a batch had not. Peak memory is :data:`RUN_BYTES` a few times over, and, where
    arrivals go back all over a large source, :data:`PIECE_BYTES` for each run. The temporary file
    lies in ``folder`` and has no name.

    ``rows``, ``steps_back``  how many there are, and how many arrive before the row before them.
    ``earliest_ns``, ``latest_ns``  the least and the greatest arrival; 0 where there are no rows.
    """

    def __init__(self, folder: Path) -> None:
        self.columns: dict[str, pa.Field] = {}
        self.rows = self.steps_back = 0
        self.earliest_ns = self.latest_ns = 0
        self._folder = folder
        self._last_ns = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[_Run] = []
        self._file: pa.NativeFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch``, which follow those before in the source. Raises OutputError."""
        if batch.num_rows == 0:
            return
        arrivals = numbers(batch.column("arrival_ns"))
        low, high = int(arrivals.min()), int(arrivals.max())
        self.earliest_ns = min(self.earliest_ns, low) if self.rows else low
        self.latest_ns = max(self.latest_ns, high) if self.rows else high
        self.steps_back += int(np.count_nonzero(np.diff(arrivals) < 0)) + int(self.rows and arrivals[0] < self._last_ns)
        self._last_ns = int(arrivals[-1])
        self.rows += batch.num_rows
        for column in batch.schema:
            self.columns.setdefault(column.name, column)
        self._waiting.append(batch)
        self._waiting_bytes += batch.get_total_buffer_size()
        if self._waiting_bytes >= RUN_BYTES:
            self._write_run()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows by arrival; can be called once."""
        schema = pa.schema(list(self.columns.values()))
        if not self._runs:
            waiting, self._waiting = self._waiting, []
            yield from _by_arrival([_widened(batch, schema) for batch in waiting], self.steps_back > 0)
            return
        self._write_run()
        if self.steps_back:
            yield from _merged([_Cursor(run, self._read, schema) for run in self._runs])
            return
        for run in self._runs:
            yield from (_widened(self._read(offset), schema) for offset in run.offsets)

    def _write_run(self) -> None:
        if not self._waiting:
            return
        run = _Run()
        self._runs.append(run)
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        schema = pa.schema(list(self.columns.values()))
        for batch in _by_arrival([_widened(batch, schema) for batch in waiting], self.steps_back > 0):
            rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
            for start in range(0, batch.num_rows, rows):
                piece = batch.slice(start, rows)
                run.first_ns.append(piece.column("arrival_ns")[0].as_py())
                run.offsets.append(self._write(piece))

    def _write(self, piece: pa.RecordBatch) -> int:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed by __exit__
            offset = self._file.seek(0, 2)
            with pa.ipc.new_stream(self._file, piece.schema) as stream:
                stream.write_batch(piece)
        except OSError as error:
            raise OutputError(f"{self._folder}: rows cannot be put aside for sorting: {reason(error)}") from error
        return int(offset)

    def _read(self, offset: int) -> pa.RecordBatch:
        assert self._file is not None
        self._file.seek(offset)
        return pa.ipc.open_stream(self._file).read_next_batch()


class _Cursor:
    """A place in a run: the rows that were read and not given out, and those that follow."""

    def __init__(self, run: _Run, read: Callable[[int], pa.RecordBatch], schema: pa.Schema) -> None:
        self.rows: pa.RecordBatch | None = None
        self._run = run
        self._read = read
        self._schema = schema
        self._next = 0

    @property
    def next_ns(self) -> int | None:
        """The first arrival that was not read yet; None at the end of the run."""
        return self._run.first_ns[self._next] if self._next < len(self._run.first_ns) else None

    @property
    def last_ns(self) -> int:
        """The last arrival that was read and not given out."""
        assert self.rows is not None
        return int(self.rows.column("arrival_ns")[-1].as_py())

    def load(self) -> None:
        self.rows = _widened(self._read(self._run.offsets[self._next]), self._schema)
        self._next += 1

    def take(self, until_ns: int, *, ties: bool) -> pa.RecordBatch:
        """The rows that arrive before ``until_ns``, and those that arrive then if ``ties``."""
        assert self.rows is not None
        rows = self.rows
        stop = int(np.searchsorted(numbers(rows.column("arrival_ns")), until_ns, side="right" if ties else "left"))
        self.rows = rows.slice(stop) if stop < rows.num_rows else None
        return rows.slice(0, stop)


def _merged(cursors: list[_Cursor]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs by arrival, ties in the order of the runs."""
    while True:
        waiting = [cursor.next_ns for cursor in cursors if cursor.rows is None and cursor.next_ns is not None]
        ready = [cursor.last_ns for cursor in cursors if cursor.rows is not None]
        if not waiting and not ready:
            return
        cut = min(ready, default=min(waiting, default=0))
        fresh = [c for c in cursors if c.rows is None and c.next_ns is not None and c.next_ns <= cut]
        for cursor in fresh:
            cursor.load()
        if fresh:
            continue
        pieces = []
        ties = True
        for cursor in cursors:
            if cursor.rows is None:
                continue
            pieces.append(cursor.take(cut, ties=ties))
            # What follows in this run arrives at the cut, too, and before that of the later runs.
            ties = ties and cursor.next_ns != cut
        yield from _by_arrival(pieces, sort=True)


def _by_arrival(batches: list[pa.RecordBatch], sort: bool) -> list[pa.RecordBatch]:
    """The rows of batches of one schema; sorted by arrival, ties as they come, if ``sort``."""
    if not sort or not batches:
        return batches
    table = pa.Table.from_batches(batches).combine_chunks()
    order = np.argsort(table["arrival_ns"].to_numpy(), kind="stable")
    sorted_batches: list[pa.RecordBatch] = table.take(pa.array(order)).combine_chunks().to_batches()
    return sorted_batches


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``batch`` with the columns of ``schema``, null where it has them not."""
    if batch.schema.equals(schema):
        return batch
    have = set(batch.schema.names)
    columns = [batch.column(f.name) if f.name in have else pa.nulls(batch.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
