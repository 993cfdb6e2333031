"""Keeps ids and names of different traces, and of repeats of one, apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import ConfigError
from kvbench.trace.columns import list_parts, numbers
from kvbench.trace.conform import rebuilt_list
from kvbench.trace.rows import Interner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.trace.reader import Trace

BLOCK_LISTS = ("block_ids", "output_block_ids")
TOKEN_LISTS = ("token_ids", "output_token_ids")
NAMES = ("request_id", "session_id")
SPACE_BITS = 40
"""Block ids of a namespace are numbered below two to this power; the bits above tell namespaces apart."""
TOKEN_STEP = 1 << 24
"""Token ids of namespace n have n times this added. Vocabularies are far smaller."""
MAX_TOKEN_SPACES = (1 << 32) // TOKEN_STEP


class Namespaces:
    """A namespace for each copy of each trace; with ``shared_ids``, for each copy of all of them.

    Where there is only one, rows stay as they are. Elsewhere block ids become other numbers, token ids
    are shifted, and names of requests and sessions get the number of the copy and of the trace, from 1,
    before them: ``2/s17``.
    """

    def __init__(self, traces: Sequence[Trace], copies: int, shared_ids: bool) -> None:
        self._sources = 1 if shared_ids else len(traces)
        self._shared = shared_ids
        self._copies = copies
        self._interners = [Interner() for _ in range(self._sources)]
        spaces = self._sources * copies
        if traces[0].ids == "token_ids" and spaces > MAX_TOKEN_SPACES:
            raise ConfigError(
                f"{spaces:,} namespaces are too many for token ids, of which 32 bits tell {MAX_TOKEN_SPACES} apart; "
                "lower --repeat"
            )
        if spaces > 1 << (64 - SPACE_BITS):
            raise ConfigError(f"{spaces:,} namespaces are too many; lower --repeat")
        self._traces = traces

    def apart(self, batch: pa.RecordBatch, copy: int, source: int) -> pa.RecordBatch:
        """``batch`` of trace number ``source`` with the ids and names of its namespace."""
        if self._sources * self._copies == 1:
            return batch
        where = self._traces[source].name
        source = 0 if self._shared else source
        label = "".join(f"{at + 1}/" for at, of in ((copy, self._copies), (source, self._sources)) if of > 1)
        space = copy * self._sources + source
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in BLOCK_LISTS:
                column = self._blocks(column, space, source)
            elif name in TOKEN_LISTS:
                column = _tokens(column, space, where)
            elif name in NAMES:
                column = pc.binary_join_element_wise(pa.scalar(label), column, "")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _blocks(self, column: pa.Array, space: int, source: int) -> pa.Array:
        parts = list_parts(column)
        values = np.ascontiguousarray(numbers(parts.values))
        packed = np.empty(len(values), np.uint64)
        self._interners[source].intern(values, packed)
        packed |= np.uint64(space << SPACE_BITS)
        return rebuilt_list(column, parts.offsets, pa.array(packed), column.type)


def _tokens(column: pa.Array, space: int, where: str) -> pa.Array:
    parts = list_parts(column)
    values = numbers(parts.values)
    if len(values) and int(values.max()) >= TOKEN_STEP:
        raise ConfigError(
            f"{where} has token id {int(values.max()):,}; to keep copies and traces apart, ids must be below "
            f"{TOKEN_STEP:,}"
        )
    shifted = (values + np.uint32(space * TOKEN_STEP)).astype(np.uint32)
    return rebuilt_list(column, parts.offsets, pa.array(shifted), column.type)
