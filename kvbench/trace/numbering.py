"""Dense numbers for the block ids of a trace: 0 … U-1 in first-seen order."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.trace.columns import list_parts, numbers
from kvbench.trace.conform import rebuilt_list
from kvbench.trace.rows import Interner
from kvbench.trace.schema import make_schema

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kvbench.trace.columns import Int64s, Numbers
    from kvbench.trace.schema import TraceFacts

MEMBER_COLUMN = "x_member"
"""A column of the import alone: the member of the source, from 0, that a row came from."""

ID_BITS = 36
"""Bits of a number that tell ids apart inside a session; the others tell the sessions."""


class Numbering:
    """Renumbers the block ids of a trace with ``columns``, batch after batch.

    ``schema`` and ``facts`` are those of the result; ``keep_ids`` adds ``original_ids``. A trace
    without block ids goes through unchanged. Ids that mean something inside their session only are
    told apart by session, or, ``by_member``, by the member of the source that a row came from, so that
    the result's scope is the file.
    """

    def __init__(self, facts: TraceFacts, columns: set[str], keep_ids: bool, by_member: bool = False) -> None:
        # Ids of the answer share the numbers of the prompt, and would take some out of its order.
        self._active = "block_ids" in columns and "output_block_ids" not in columns
        self._keep = keep_ids and self._active
        self._by_session = facts.id_scope == "session"
        self._by_member = by_member and not self._by_session
        self._interner = Interner()
        self._apart = _Apart()
        self.schema = make_schema(columns | {"original_ids"} if self._keep else columns)
        scope = "file" if self._active and self._by_session else facts.id_scope
        self.facts = dataclasses.replace(facts, dense=self._active, id_scope=scope)

    @property
    def distinct(self) -> int | None:
        """The number of different blocks so far; None for a trace without block ids."""
        return len(self._interner) if self._active else None

    @property
    def active(self) -> bool:
        """Whether the trace has block ids that are renumbered."""
        return self._active

    def renumbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """``batch`` with dense block ids; may have the member of each row in :data:`MEMBER_COLUMN`."""
        if not self._active:
            return batch.select(self.schema.names)
        column = batch.column("block_ids")
        parts = list_parts(column)
        values = numbers(parts.values)
        if self._by_session:
            values = self._apart.told_apart(values, parts.lengths, _sessions(batch))
        elif self._by_member:
            values = self._apart.told_apart(values, parts.lengths, numbers(batch.column(MEMBER_COLUMN)).tolist())
        dense = np.empty(len(values), np.uint64)
        self._interner.intern(values, dense)
        replaced = {"block_ids": rebuilt_list(column, parts.offsets, pa.array(dense), column.type)}
        if self._keep:
            replaced["original_ids"] = column
        arrays = [replaced[name] if name in replaced else batch.column(name) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _Apart:
    """Makes ids that mean something in their space only (a session, a member) differ between spaces."""

    def __init__(self) -> None:
        self._ids = Interner()
        self._spaces: dict[Hashable, int] = {}
        self._lone_rows = 0

    def told_apart(self, values: Numbers, lengths: Int64s, spaces: Sequence[Hashable]) -> Numbers:
        """One number for each pair of space and id: the space's above, the id's below. None is a space of its own."""
        of_rows = np.array([self._number(space) for space in spaces], np.uint64)
        packed = np.empty(len(values), np.uint64)
        self._ids.intern(values, packed)
        if len(self._ids) > 1 << ID_BITS or len(self._spaces) + self._lone_rows > 1 << (64 - ID_BITS):
            raise TraceError("the trace has too many sessions or block ids to tell them apart by 64-bit numbers")
        packed |= np.repeat(of_rows << np.uint64(ID_BITS), lengths)
        return packed

    def _number(self, space: Hashable | None) -> int:
        if space is not None and space in self._spaces:
            return self._spaces[space]
        number = len(self._spaces) + self._lone_rows
        if space is None:
            self._lone_rows += 1
        else:
            self._spaces[space] = number
        return number


def _sessions(batch: pa.RecordBatch) -> list[str | None]:
    if "session_id" not in batch.schema.names:
        return [None] * batch.num_rows
    return batch.column("session_id").to_pylist()  # type: ignore[no-any-return]
