"""libCacheSim's oracleGeneral: an access to a block a record, with the number of its next access."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import TraceError
from kvbench.trace.columns import list_parts, numbers
from kvbench.trace.exports import TraceExport, id_names
from kvbench.trace.rows import Interner
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from kvbench.trace.columns import Int64s
    from kvbench.trace.reader import Trace

RECORD = np.dtype([("time_s", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")])
NEVER = -1
MAX_TIME_S = 2**32 - 1


class OracleGeneralExport(TraceExport):
    """The blocks of each request from first to last, all of size 1; accesses are numbered from 1."""

    carries = frozenset({"arrival_ns", "block_ids", "original_ids"})

    def check(self, trace: Trace) -> list[str]:
        if trace.ids != "block_ids":
            raise TraceError(f"{trace.name}: has no block ids, and libCacheSim's traces are accesses to blocks")
        if trace.facts.id_scope == "session":
            raise TraceError(f"{trace.name}: its ids mean something in their session only; import the source anew")
        return ["times are cut to whole seconds, each block is an object of size 1, and where requests begin is lost"]

    def write(self, trace: Trace, batches: Iterator[pa.RecordBatch], path: Path) -> None:
        ids = id_names(trace)
        assert ids is not None
        nexts = _Nexts(path)
        with path.open("wb") as file:
            for batch in batches:
                parts = list_parts(batch.column(ids))
                records = np.zeros(int(parts.offsets[-1]), RECORD)
                times = numbers(batch.column("arrival_ns")) // NS_PER_S
                if len(times) and times.max() > MAX_TIME_S:
                    raise TraceError(f"{trace.name}: arrivals pass the {MAX_TIME_S:,} s that libCacheSim's times reach")
                records["time_s"] = np.repeat(times, parts.lengths)
                records["object"] = numbers(parts.values)
                records["size"] = 1
                records["next"] = NEVER
                nexts.add(records)
                records.tofile(file)
                file.flush()
                nexts.settle()


class _Nexts:
    """Fills in the next access of each record, in the file where it was written before.

    Memory is 8 bytes a distinct block beside the table of their numbers.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._interner = Interner()
        self._latest: Int64s = np.full(1024, -1, np.int64)
        self._count = 0
        self._earlier: Int64s = np.zeros(0, np.int64)
        self._later: Int64s = np.zeros(0, np.int64)

    def add(self, records: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
        """Take the next records of the file; links inside of them are set, those to earlier ones wait."""
        objects = np.empty(len(records), np.uint64)
        self._interner.intern(np.ascontiguousarray(records["object"]), objects)
        order = np.argsort(objects, kind="stable")
        same = objects[order[1:]] == objects[order[:-1]]
        records["next"][order[:-1][same]] = self._count + order[1:][same] + 1
        firsts = order[np.concatenate([[True], ~same])] if len(order) else order
        lasts = order[np.concatenate([~same, [True]])] if len(order) else order
        if len(self._interner) > len(self._latest):
            grown = np.full(2 * len(self._interner), -1, np.int64)
            grown[: len(self._latest)] = self._latest
            self._latest = grown
        before = self._latest[objects[firsts]]
        self._earlier, self._later = before[before >= 0], self._count + firsts[before >= 0] + 1
        self._latest[objects[lasts]] = self._count + lasts
        self._count += len(records)

    def settle(self) -> None:
        """Set the links of earlier records, once the new ones are in the file."""
        if len(self._earlier):
            whole = np.memmap(self._path, RECORD, "r+")
            whole["next"][self._earlier] = self._later
            whole.flush()
