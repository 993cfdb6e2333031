"""The I/O log of MLPerf Storage's ``kv_cache_benchmark``: reads and writes of whole objects, tier by tier.

Each read or write of a key is a request for it. An object is one block of one token, whatever its size; or, where
``bytes_per_token`` says what a token takes, a prompt of its tokens, in blocks that belong to the key. What is
written in phase Evict moves between tiers, which a replay does by itself, and is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.trace.columns import validity
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.tablefiles import CsvTable, header_of, require_columns
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import Seconds, Whole, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kvbench.trace.formats.text import Lines

COLUMNS = ("Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase")
BYTES = Whole(pa.int64(), 0, 2**62)
MAX_BLOCKS = 1 << 15
"""Of one object: a few letters of a file must not fill the memory."""
ROWS_AT_ONCE = 512
"""So that these rows with so many blocks each are not too much at once."""


class MlperfIoFormat(TraceFormat):
    """See the module.

    ``bytes_per_token``  of an object; 0: each object is one block.
    ``block_tokens``     tokens of a block, where objects have tokens.
    ``operations``       ``all``, or ``read`` or ``write`` alone.
    """

    absolute_times = True

    def __init__(self, bytes_per_token: int = 0, block_tokens: int = 16, operations: str = "all") -> None:
        self._bytes_per_token = bytes_per_token
        self._block_tokens = block_tokens if bytes_per_token else 1
        self._operations = ("Read", "Write") if operations == "all" else (operations.capitalize(),)
        self._known: dict[str, int] = {}
        self._evictions = 0

    def sniff(self, head: bytes, name: str) -> bool:
        return set(COLUMNS) <= set(header_of(head))

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._block_tokens, source_format="mlperf-io")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        table = CsvTable(lines)
        require_columns(lines.name, table.names, COLUMNS)
        self._evictions = 0
        for piece in (part for whole in table.pieces() for part in whole.split(ROWS_AT_ONCE)):
            rows = Rows(piece)
            rows.read("arrival_ns", "Timestamp", Seconds(9), required=True)
            rows.read("type", "Operation", as_text, required=True)
            self._objects(rows)
            self._choose(rows)
            piece.count(log.ignored_fields, COLUMNS)
            yield rows.batch(lines.name, log)
        if self._evictions:
            log.notes.append(f"{lines.name}: {self._evictions:,} operations of evictions were left out")

    def _choose(self, rows: Rows) -> None:
        operations = rows.columns["type"]
        known = pc.is_in(operations, pa.array(["Read", "Write"])).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(~known & validity(operations)).tolist():
            rows.refuse(row, "Operation", operations[row].as_py(), "must be Read or Write")
        phases = rows.values("Phase", as_text)
        evicted = pc.fill_null(pc.equal(phases, "Evict"), False).to_numpy(zero_copy_only=False)
        self._evictions += int(np.count_nonzero(evicted & rows.good()))
        asked = pc.is_in(operations, pa.array(self._operations)).to_numpy(zero_copy_only=False)
        rows.keep(asked & ~evicted)

    def _objects(self, rows: Rows) -> None:
        """Lengths and ids: id ``i << 32 | n`` is block n of the i-th key."""
        keys = rows.values("Key", as_text).to_pylist()
        sizes = rows.values("Object_Size_Bytes", BYTES).to_pylist()
        tokens: list[int] = []
        ids: list[npt.NDArray[np.uint64]] = []
        for row, (key, size) in enumerate(zip(keys, sizes, strict=True)):
            count = 1 if not self._bytes_per_token else -(-(size or 0) // self._bytes_per_token)
            blocks = -(-count // self._block_tokens)
            if key is None:
                rows.refuse(row, "Key", None, "is missing")
            elif size is None:
                rows.refuse(row, "Object_Size_Bytes", None, "is missing")
            elif blocks > MAX_BLOCKS:
                rows.refuse(row, "Object_Size_Bytes", size, f"makes more than {MAX_BLOCKS:,} blocks")
            else:
                first = self._known.setdefault(key, len(self._known)) << 32
                tokens.append(count)
                ids.append(np.arange(first, first + blocks, dtype=np.uint64))
                continue
            tokens.append(0)
            ids.append(np.zeros(0, np.uint64))
        rows.columns["input_tokens"] = pa.array(tokens, pa.uint32())
        rows.columns["block_ids"] = pa.array(ids, pa.list_(pa.uint64()))
