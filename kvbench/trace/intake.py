"""The first half of an import: the rows of all members, checked and put aside for sorting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.trace.columns import numbers, validity
from kvbench.trace.conform import conform
from kvbench.trace.formats import ROW_COLUMN, ReadLog, TraceFormat
from kvbench.trace.numbering import MEMBER_COLUMN
from kvbench.trace.recut import split
from kvbench.trace.rejects import MAX_EXAMPLES
from kvbench.trace.schema import COLUMN_BY_NAME, TraceFacts, id_column, normalise_schema
from kvbench.trace.validate import BatchValidator

if TYPE_CHECKING:
    from kvbench.trace.columns import Int64s
    from kvbench.trace.formats.text import Lines
    from kvbench.trace.limit import PromptLimit
    from kvbench.trace.spool import Spool
    from kvbench.trace.validate import OnError


@dataclass(slots=True)
class _Lone:
    """Rows without ids, which are bad where other rows have some."""

    count: int = 0
    first: list[tuple[str, int]] = field(default_factory=list)

    def add(self, name: str, row_numbers: Int64s) -> None:
        self.count += len(row_numbers)
        room = MAX_EXAMPLES - len(self.first)
        self.first.extend((name, row) for row in row_numbers[:room].tolist())


class Intake:
    """Reads members with ``format`` into ``spool``: good rows only, as version 1 columns that hold something.

    ``block_tokens``  instead of what the format says.
    ``strict_order``  an arrival before that of the row before is an error.
    ``limit``         the most tokens of a prompt.
    ``tag_members``   rows get the number of their member in :data:`MEMBER_COLUMN`.
    """

    def __init__(
        self,
        format: TraceFormat,
        log: ReadLog,
        spool: Spool,
        *,
        block_tokens: int | None = None,
        strict_order: bool = False,
        tag_members: bool = False,
        limit: PromptLimit | None = None,
    ) -> None:
        self.facts: TraceFacts | None = None
        self.lacking = 0
        self._format = format
        self._log = log
        self._spool = spool
        self._block_tokens = block_tokens
        self._strict_order = strict_order
        self._tag_members = tag_members
        self._limit = limit
        self._members = 0
        self._last_ns: int | None = None
        self._ids: str | None = None
        self._lone = _Lone()

    def read(self, lines: Lines) -> None:
        """Take all rows of one member. Raises TraceError."""
        validator: BatchValidator | None = None
        rows = 0
        for raw in self._format.read(lines, self._log):
            if validator is None:
                facts = self._agreed_facts(lines.name)
                on_error: OnError = "skip" if self._log.skip else "fail"
                validator = BatchValidator(
                    facts, lines.name, on_error, ordered=False, ids_may_lack=True, rejected=self._log.rejected
                )
            for piece in split(raw):
                if ROW_COLUMN in piece.schema.names:
                    row_numbers = numbers(piece.column(ROW_COLUMN)).astype(np.int64)
                else:
                    row_numbers = np.arange(rows + 1, rows + 1 + piece.num_rows)
                rows += piece.num_rows
                self._take(piece, row_numbers, lines.name, validator, facts)
        self._members += 1

    def finish(self) -> str | None:
        """The id column if rows are to be left out that have no ids, else None; ``lacking`` counts them."""
        if self._ids is None or not self._lone.count:
            return None
        rejected = self._log.rejected
        for place in self._lone.first:
            rejected.add(str(_without_ids(self._ids, place)))
        rejected.count += self._lone.count - len(self._lone.first)
        self.lacking = self._lone.count
        return self._ids

    def _agreed_facts(self, name: str) -> TraceFacts:
        facts = self._format.facts().with_block_tokens(self._block_tokens)
        if self.facts is not None and facts != self.facts:
            raise TraceError(f"{name}: differs from the files before it in {_difference(self.facts, facts)}")
        self.facts = facts
        return facts

    def _take(
        self, piece: pa.RecordBatch, row_numbers: Int64s, name: str, validator: BatchValidator, facts: TraceFacts
    ) -> None:
        piece = _without_empty_columns(piece)
        batch, failures = conform(piece, normalise_schema(piece.schema, name), name)
        checked = _at_zero(batch) if self._log.any_origin else batch
        bad = validator.check(checked, failures, row_numbers)
        if bad is not None:
            batch, row_numbers = batch.filter(pa.array(~bad)), row_numbers[~bad]
        if self._limit is not None:
            batch, row_numbers = self._limit.applied(batch, row_numbers, name, facts, self._log)
        if batch.num_rows == 0:
            return
        self._look_for_ids(batch, row_numbers, name)
        if self._strict_order:
            self._check_order(numbers(batch.column("arrival_ns")), row_numbers, name)
        if self._tag_members:
            member = pa.array(np.full(batch.num_rows, self._members, np.uint32))
            batch = batch.append_column(pa.field(MEMBER_COLUMN, pa.uint32()), member)
        self._spool.add(batch)

    def _look_for_ids(self, batch: pa.RecordBatch, row_numbers: Int64s, name: str) -> None:
        ids = id_column(batch.schema)
        if ids is None:
            self._lone.add(name, row_numbers)
        else:
            if self._ids not in (None, ids):
                raise TraceError(f"{name}: rows have {ids} here and {self._ids} before; a trace has one of them")
            self._ids = ids
            if batch.column(ids).null_count:
                self._lone.add(name, row_numbers[~validity(batch.column(ids))])
        if self._ids is not None and self._lone.count and not self._log.skip:
            raise _without_ids(self._ids, self._lone.first[0]).of_one_row()

    def _check_order(self, arrivals: Int64s, row_numbers: Int64s, name: str) -> None:
        before = np.concatenate([[arrivals[0] if self._last_ns is None else self._last_ns], arrivals[:-1]])
        back = np.flatnonzero(arrivals < before)
        if len(back):
            at = int(back[0])
            rule = f"is before the previous row's {int(before[at]):,}; leave out --strict-order to sort the rows"
            raise TraceError.at(name, int(row_numbers[at]), "arrival_ns", int(arrivals[at]), rule)
        self._last_ns = int(arrivals[-1])


def _without_ids(column: str, place: tuple[str, int]) -> TraceError:
    return TraceError.at(*place, column, None, "must not be null where other rows have ids")


def _difference(one: TraceFacts, other: TraceFacts) -> str:
    names = [name for name in TraceFacts.__dataclass_fields__ if getattr(one, name) != getattr(other, name)]
    return ", ".join(f"{name}: {getattr(one, name)!r} before, {getattr(other, name)!r} here" for name in names)


def _without_empty_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` without the optional columns that hold nothing."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    empty = {name for name, column in columns if column.null_count == batch.num_rows}
    drop = [name for name in empty if name in COLUMN_BY_NAME and not COLUMN_BY_NAME[name].required]
    return batch.drop_columns(drop) if drop else batch


def _at_zero(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with all arrivals at 0, null where there is none."""
    arrivals = batch.column("arrival_ns")
    zeros = pa.array(np.zeros(batch.num_rows, np.int64), mask=~validity(arrivals))
    at = batch.schema.get_field_index("arrival_ns")
    return batch.set_column(at, batch.schema.field(at), zeros)
