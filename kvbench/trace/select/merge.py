"""Several sorted traces as one, by arrival; at a tie, the trace that was named first comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.trace.columns import numbers
from kvbench.trace.recut import joined
from kvbench.trace.schema import make_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def with_columns(batch: pa.RecordBatch, columns: set[str]) -> pa.RecordBatch:
    """``batch`` with all of ``columns``, null where it has them not."""
    schema = make_schema(columns)
    if batch.schema.names == schema.names:
        return batch
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def merged(traces: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """All rows of ``traces``, whose batches have one schema and rows and are sorted by arrival."""
    if len(traces) == 1:
        yield from traces[0]
        return
    feeds = [_Feed(each) for each in traces]
    while True:
        bound = min((feed.last_ns for feed in feeds if not feed.ended), default=None)
        if bound is None:
            break
        # What arrives at the bound waits: the trace that ends there may have more of the same time.
        ready = [feed.take_before(bound) for feed in feeds]
        yield from _in_order(ready)
        for feed in feeds:
            if not feed.ended and feed.last_ns == bound:
                feed.fill()
    yield from _in_order([feed.take_all() for feed in feeds])


class _Feed:
    """The rows of one trace that were read and not yet taken; there are some until the trace has ended."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._held: list[pa.RecordBatch] = []
        self.ended = False
        self.last_ns = 0
        self.fill()

    def fill(self) -> None:
        """Read one batch more."""
        batch = next(self._batches, None)
        if batch is None:
            self.ended = True
            return
        self._held.append(batch)
        self.last_ns = int(batch.column("arrival_ns")[-1].as_py())

    def take_before(self, bound_ns: int) -> list[pa.RecordBatch]:
        """The held rows that arrive before ``bound_ns``."""
        taken, left = [], []
        for batch in self._held:
            cut = int(np.searchsorted(numbers(batch.column("arrival_ns")), bound_ns))
            if cut:
                taken.append(batch.slice(0, cut))
            if cut < batch.num_rows:
                left.append(batch.slice(cut))
        self._held = left
        return taken

    def take_all(self) -> list[pa.RecordBatch]:
        taken, self._held = self._held, []
        return taken


def _in_order(ready: list[list[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    pieces = [batch for taken in ready for batch in taken]
    if not pieces:
        return
    batch = joined(pieces)
    if sum(map(bool, ready)) > 1:
        batch = batch.take(pa.array(np.argsort(numbers(batch.column("arrival_ns")), kind="stable")))
    yield batch
