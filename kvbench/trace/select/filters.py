"""Takes rows of one trace: by number, time, session, tenant, model, and sample."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import ConfigError
from kvbench.trace.columns import list_parts, numbers, validity
from kvbench.trace.sampling import UnitSample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbench.trace.columns import Bools
    from kvbench.trace.reader import Trace
    from kvbench.trace.select import Selection


_RANGE = re.compile(r"^([0-9]{0,18}):([0-9]{0,18})$")


class RowRange(NamedTuple):
    """Rows from ``first`` to ``last``, both included, counted from 1; ``last`` None: to the end."""

    first: int = 1
    last: int | None = None

    @classmethod
    def parse(cls, text: str) -> RowRange:
        """``1:1000``, ``5000:`` or ``:1000``. Raises ConfigError for anything else."""
        match = _RANGE.match(text)
        if match is None:
            raise ConfigError(f"--rows {text}: write FIRST:LAST, for example 1:1000, 5000: or :1000")
        first, last = match.groups()
        found = cls(int(first or 1), int(last) if last else None)
        if found.first < 1 or (found.last is not None and found.last < found.first):
            raise ConfigError(f"--rows {text}: rows are counted from 1, and the last must not be before the first")
        return found


class RowFilter:
    """One pass over ``trace``.

    ``read_rows``       rows read so far; reading ends where nothing more can be taken.
    ``candidate_rows``, ``candidate_ids``  rows and their ids that came to the sample.
    ``silent_rows``     rows that were left out because they have no output tokens.
    ``kept_rows``, ``kept_ids``  rows and their ids that were taken.
    ``sample``          chooses units; None without one.
    """

    def __init__(self, trace: Trace, selection: Selection) -> None:
        self._trace = trace
        self._selection = selection
        self.read_rows = 0
        self.candidate_rows = self.candidate_ids = 0
        self.kept_rows = self.kept_ids = 0
        self.silent_rows = 0
        self.sample = UnitSample(selection.sample, trace.facts) if selection.sample is not None else None
        self._names = [
            (column, pa.array(names, pa.string()))
            for column, names in (
                ("session_id", selection.sessions),
                ("tenant", selection.tenants),
                ("model", selection.models),
            )
            if names
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows that are taken, batch by batch; none of them is empty."""
        rows = self._selection.rows
        for batch in self._trace.batches():
            before = self.read_rows
            self.read_rows += batch.num_rows
            mask = self._by_place(batch, before)
            for column, names in self._names:
                mask &= np.asarray(pc.is_in(batch.column(column), names).to_numpy(zero_copy_only=False))
            if self._selection.drop_silent:
                output = batch.column("output_tokens")
                silent = mask & (numbers(output) == 0) & validity(output)
                self.silent_rows += int(silent.sum())
                mask &= ~silent
            taken = self._sampled(batch if mask.all() else batch.filter(pa.array(mask)))
            if taken.num_rows:
                yield taken
            if rows.last is not None and self.read_rows >= rows.last:
                return
            until = self._selection.until_ns
            if until is not None and batch.num_rows and batch.column("arrival_ns")[-1].as_py() >= until:
                return

    def _by_place(self, batch: pa.RecordBatch, before: int) -> Bools:
        chosen, arrivals = self._selection, numbers(batch.column("arrival_ns"))
        mask: Bools = arrivals >= chosen.from_ns
        if chosen.until_ns is not None:
            mask &= arrivals < chosen.until_ns
        mask[: max(0, min(chosen.rows.first - 1 - before, len(mask)))] = False
        if chosen.rows.last is not None:
            mask[max(0, chosen.rows.last - before) :] = False
        return mask

    def _sampled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.candidate_rows += batch.num_rows
        self.candidate_ids += _id_count(batch)
        if self.sample is not None:
            batch = batch.filter(pa.array(self.sample.keep(batch)))
        self.kept_rows += batch.num_rows
        self.kept_ids += _id_count(batch)
        return batch


def _id_count(batch: pa.RecordBatch) -> int:
    for name in ("block_ids", "token_ids"):
        if name in batch.schema.names:
            return int(list_parts(batch.column(name)).offsets[-1])
    return 0
