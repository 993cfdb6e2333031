"""Where batches are cut: by the content of the rows alone.

A batch takes rows as long as it has at most :data:`MAX_ROWS` of them and at most :data:`MAX_IDS`
list entries (block ids, token ids and the like together); a longer row is a batch of its own. The
reader and the writer share the rule, so equal rows give equal batches and equal files however
they came in, and a file that was written by it is read without a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.trace.columns import list_parts
from kvbench.trace.schema import is_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbench.trace.columns import Int64s

MAX_ROWS = 65_536
MAX_IDS = 524_288
"""4 MiB of block ids: larger batches are no faster, and memory and the time between two of them grow."""

FEW_ROWS = 256
"""Batches with fewer rows are joined before they are checked."""


class Recutter:
    """Takes batches of one schema in any cut and gives them back in the canonical one."""

    def __init__(self) -> None:
        self._pieces: list[pa.RecordBatch] = []
        self._rows = 0
        self._ids = 0

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add the rows of ``batch``; yield the batches that are complete now."""
        ends = _running_ids(batch)
        start = 0
        while start < batch.num_rows:
            stop = self._fit(ends, start)
            if stop > start:
                self._pieces.append(batch.slice(start, stop - start))
                self._rows += stop - start
                self._ids += int(ends[stop] - ends[start])
            if stop < batch.num_rows or self._rows == MAX_ROWS:
                yield from self.flush()
            start = stop

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are left, if any; for the end of the trace."""
        if self._pieces:
            batch = joined(self._pieces)
            self._pieces, self._rows, self._ids = [], 0, 0
            yield batch

    def _fit(self, ends: Int64s, start: int) -> int:
        """Where the open batch must be cut if it goes on with row ``start``."""
        within_ids = int(np.searchsorted(ends, ends[start] + MAX_IDS - self._ids, side="right")) - 1
        stop = min(within_ids, start + MAX_ROWS - self._rows, len(ends) - 1)
        if stop <= start and self._rows == 0:
            return start + 1
        return max(stop, start)


def split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of one batch that respect the limits, so that work on a piece is bounded."""
    cutter = Recutter()
    yield from cutter.push(batch)
    yield from cutter.flush()


def gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``batches``, of which those with few rows are joined: work per batch would outweigh that per row.

    An error comes after the rows that came before it.
    """
    small: list[pa.RecordBatch] = []
    rows = 0
    try:
        for batch in batches:
            if batch.num_rows >= FEW_ROWS:
                yield from _all_in_one(small)
                small, rows = [], 0
                yield batch
                continue
            small.append(batch)
            rows += batch.num_rows
            if rows >= FEW_ROWS:
                yield from _all_in_one(small)
                small, rows = [], 0
    except TraceError:
        yield from _all_in_one(small)
        raise
    yield from _all_in_one(small)


def _all_in_one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    return joined


def _running_ids(batch: pa.RecordBatch) -> Int64s:
    """For each row, and for the end, the list entries before it."""
    ends = np.zeros(batch.num_rows + 1, np.int64)
    for column in batch.columns:
        if is_list(column.type):
            ends += list_parts(column).offsets
    return ends


def joined(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all ``pieces``, of which there is one at least, as one batch."""
    if len(pieces) == 1:
        return pieces[0]
    table = pa.Table.from_batches(pieces).combine_chunks()
    return pa.RecordBatch.from_arrays([column.chunk(0) for column in table.columns], schema=table.schema)
