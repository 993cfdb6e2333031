"""One digest for the content of a trace, whatever file or batches it came in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from blake3 import blake3

from kvbench.trace.columns import list_parts, numbers, text_parts, validity
from kvbench.trace.schema import canonical_json, is_list

if TYPE_CHECKING:
    from kvbench.trace.columns import Numbers
    from kvbench.trace.schema import TraceFacts


class TraceDigest:
    """BLAKE3 over the columns of a trace, fed batch by batch.

    Each column has up to three streams: values (nulls as 0), lengths (of lists and strings) and
    validity (one byte a row, in columns that may be null). Where batches end leaves no mark. ``rows`` is how many it
    has been fed.
    """

    def __init__(self, schema: pa.Schema, facts: TraceFacts) -> None:
        self._facts = facts
        self.rows = 0
        self._columns = {field.name: _ColumnDigest(field) for field in schema}

    def update(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a version 1 batch."""
        self.rows += batch.num_rows
        for name, digest in self._columns.items():
            digest.update(batch.column(name))

    def value(self) -> str:
        """``blake3:`` and the hex digest of all rows so far."""
        facts = self._facts
        content = {
            "block_tokens": facts.block_tokens,
            "columns": {name: digest.value() for name, digest in self._columns.items()},
            "dense": facts.dense,
            "id_kind": facts.id_kind,
            "id_scope": facts.id_scope,
            "rows": self.rows,
            "tail_rule": facts.tail_rule,
            "version": facts.version,
        }
        return f"blake3:{blake3(canonical_json(content).encode()).hexdigest()}"


class _ColumnDigest:
    def __init__(self, field: pa.Field) -> None:
        self._type = field.type
        self._values = blake3()
        self._lengths = blake3()
        self._validity = blake3() if field.nullable else None

    def update(self, column: pa.Array) -> None:
        if self._validity is not None:
            self._validity.update(_bytes(validity(column).view(np.uint8)))
        if is_list(self._type):
            parts = list_parts(column)
            self._lengths.update(_bytes(parts.lengths))
            self._values.update(_bytes(numbers(parts.values)))
        elif pa.types.is_string(self._type):
            lengths, text = text_parts(column)
            self._lengths.update(_bytes(lengths))
            self._values.update(text)
        else:
            self._values.update(_bytes(numbers(column)))

    def value(self) -> dict[str, str]:
        streams = {"type": str(self._type), "values": self._values.hexdigest(), "lengths": self._lengths.hexdigest()}
        if self._validity is not None:
            streams["validity"] = self._validity.hexdigest()
        return streams


def _bytes(values: Numbers) -> memoryview:
    """The little-endian bytes of an array."""
    wanted = values.dtype.newbyteorder("<")
    return np.ascontiguousarray(values, dtype=wanted).view(np.uint8).data
