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
    from kvbench.trace.columns import Int64s, Numbers
    from kvbench.trace.schema import TraceFacts

ID_BITS = 36
"""Bits of a number that tell ids apart inside a session; the others tell the sessions."""


class Numbering:
    """Renumbers the block ids of a trace with ``columns``, batch after batch.

    ``schema`` and ``facts`` are those of the result; ``keep_ids`` adds ``original_ids``. A trace
    without block ids goes through unchanged. Ids that mean something inside their session only are
    told apart by session, so that the result's scope is the file.
    """

    def __init__(self, facts: TraceFacts, columns: set[str], keep_ids: bool) -> None:
        # Ids of the answer share the numbers of the prompt, and would take some out of its order.
        self._active = "block_ids" in columns and "output_block_ids" not in columns
        self._keep = keep_ids and self._active
        self._by_session = facts.id_scope == "session"
        self._interner = Interner()
        self._within_sessions = _WithinSessions()
        self.schema = make_schema(columns | {"original_ids"} if self._keep else columns)
        scope = "file" if self._active and self._by_session else facts.id_scope
        self.facts = dataclasses.replace(facts, dense=self._active, id_scope=scope)

    @property
    def distinct(self) -> int | None:
        """The number of different blocks so far; None for a trace without block ids."""
        return len(self._interner) if self._active else None

    def renumbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """``batch`` with dense block ids."""
        if not self._active:
            return batch
        column = batch.column("block_ids")
        parts = list_parts(column)
        values = numbers(parts.values)
        if self._by_session:
            values = self._within_sessions.told_apart(values, parts.lengths, batch)
        dense = np.empty(len(values), np.uint64)
        self._interner.intern(values, dense)
        replaced = {"block_ids": rebuilt_list(column, parts.offsets, pa.array(dense), column.type)}
        if self._keep:
            replaced["original_ids"] = column
        arrays = [replaced[name] if name in replaced else batch.column(name) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _WithinSessions:
    """Makes ids that mean something in their session only differ between sessions."""

    def __init__(self) -> None:
        self._ids = Interner()
        self._sessions: dict[str, int] = {}
        self._lone_rows = 0

    def told_apart(self, values: Numbers, lengths: Int64s, batch: pa.RecordBatch) -> Numbers:
        """One number for each pair of session and id: the session's above, the id's below."""
        if "session_id" in batch.schema.names:
            names = batch.column("session_id").to_pylist()
        else:
            names = [None] * batch.num_rows
        sessions = np.array([self._session(name) for name in names], np.uint64)
        packed = np.empty(len(values), np.uint64)
        self._ids.intern(values, packed)
        if len(self._ids) > 1 << ID_BITS or len(self._sessions) + self._lone_rows > 1 << (64 - ID_BITS):
            raise TraceError("the trace has too many sessions or block ids to tell them apart by 64-bit numbers")
        packed |= np.repeat(sessions << np.uint64(ID_BITS), lengths)
        return packed

    def _session(self, name: str | None) -> int:
        if name is not None and name in self._sessions:
            return self._sessions[name]
        number = len(self._sessions) + self._lone_rows
        if name is None:
            self._lone_rows += 1
        else:
            self._sessions[name] = number
        return number
