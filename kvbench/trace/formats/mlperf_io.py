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
from kvbench.trace.formats.madeblocks import IdSource, NamedIds, Run, with_ids
from kvbench.trace.formats.tablefiles import CsvTable, header_of, require_columns
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import Seconds, Whole, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbench.trace.formats.text import Lines

COLUMNS = ("Timestamp", "Operation", "Object_Size_Bytes", "Tier", "Key", "Phase")
BYTES = Whole(pa.int64(), 0, 2**62)
MAX_BLOCKS = 1 << 15
"""Of one object: a few letters of a file must not fill the memory."""


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
        self._objects = NamedIds(IdSource())
        self._evictions = 0

    def sniff(self, head: bytes, name: str) -> bool:
        return set(COLUMNS) <= set(header_of(head))

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._block_tokens, source_format="mlperf-io")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        table = CsvTable(lines)
        require_columns(lines.name, table.names, COLUMNS)
        self._evictions = 0
        for piece in table.pieces():
            rows = Rows(piece)
            rows.read("arrival_ns", "Timestamp", Seconds(9), required=True)
            rows.read("type", "Operation", as_text, required=True)
            self._choose(rows)
            runs = self._runs(rows)
            piece.count(log.ignored_fields, COLUMNS)
            yield from with_ids(rows.batch(lines.name, log), runs)
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

    def _runs(self, rows: Rows) -> list[list[Run]]:
        """Takes the lengths, and returns the ids of each good row; others are refused."""
        keys = rows.values("Key", as_text).to_pylist()
        sizes = rows.values("Object_Size_Bytes", BYTES).to_pylist()
        tokens: list[int] = []
        runs: list[list[Run]] = []
        for row, is_good in enumerate(rows.good().tolist()):
            key, size = keys[row], sizes[row]
            count = 1 if not self._bytes_per_token else -(-(size or 0) // self._bytes_per_token)
            blocks = -(-count // self._block_tokens)
            if key is None:
                rows.refuse(row, "Key", None, "is missing")
            elif size is None:
                rows.refuse(row, "Object_Size_Bytes", None, "is missing")
            elif blocks > MAX_BLOCKS:
                rows.refuse(row, "Object_Size_Bytes", size, f"makes more than {MAX_BLOCKS:,} blocks")
            elif is_good:
                runs.append(self._objects.first(blocks, key))
            tokens.append(count if blocks <= MAX_BLOCKS else 0)
        rows.columns["input_tokens"] = pa.array(tokens, pa.uint32())
        return runs
