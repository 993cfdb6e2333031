"""libCacheSim's binary traces: oracleGeneral, its variant with operations and namespaces, and vscsi.

Records of fixed length, little-endian, one access to one object each. An object becomes a request
of one block; see :class:`Objects` for what becomes of sizes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.trace.formats import ROW_COLUMN, ReadLog, TraceFormat
from kvbench.trace.formats.objects import Objects
from kvbench.trace.schema import TraceFacts, make_schema
from kvbench.units import MAX_NS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    import numpy.typing as npt

    from kvbench.trace.formats.text import Lines

    Records = npt.NDArray[Any]

RECORDS_PER_BATCH = 16_384
NEVER = (-1, 2**63 - 1)
"""How a record says that its object is not accessed again."""
VSCSI_MAJOR = 1
"""Of the vscsi versions (the high byte of ``version``), the one with this layout."""


class _BinaryFormat(TraceFormat):
    """Reads records of :attr:`record`, which has at least the fields ``time``, ``id`` and ``size``.

    ``sizes``: whether an object has as many tokens as bytes (``bytes``) or one (``ignore``).
    """

    name: ClassVar[str]
    record: ClassVar[np.dtype[Any]]
    unit_ns: ClassVar[int]

    def __init__(self, sizes: str = "bytes") -> None:
        self._objects = Objects(sizes == "bytes")

    def sniff(self, head: bytes, name: str) -> bool:
        count = len(head) // self.record.itemsize
        if count == 0 or b"\0" not in head:  # text has no zero bytes, and sizes below 16 MiB do
            return False
        records = np.frombuffer(head, self.record, count)
        ordered = bool((records["time"][1:] >= records["time"][:-1]).all())
        return ordered and bool((records["size"] > 0).all()) and self.plausible(records)

    @abstractmethod
    def plausible(self, records: Records) -> bool:
        """Whether the first records of a file, which has some, are such as this format has."""

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._objects.block_tokens, source_format=self.name)

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        self._objects.describe(log)
        row = 1
        with lines.open() as file:
            while data := _read_full(file, RECORDS_PER_BATCH * self.record.itemsize):
                count, rest = divmod(len(data), self.record.itemsize)
                if count:
                    yield from self._batches(np.frombuffer(data, self.record, count), row, lines.name, log)
                row += count
                if rest:
                    rule = f"is cut off: a record has {self.record.itemsize} bytes"
                    log.refuse(TraceError.at(lines.name, row, "record", f"{rest} bytes", rule))

    def _batches(self, records: Records, first: int, where: str, log: ReadLog) -> Iterator[pa.RecordBatch]:
        good = np.ones(len(records), np.bool_)
        for field, bad, rule in (
            ("size", records["size"] == 0, "must be 1 at least"),
            ("time", records["time"] > MAX_NS // self.unit_ns, "is too large; times are counted in 64-bit nanoseconds"),
        ):
            for at in np.flatnonzero(good & bad).tolist():
                log.refuse(TraceError.at(where, first + at, field, int(records[field][at]), rule))
            good &= ~bad
        rows = np.arange(first, first + len(records), dtype=np.uint64)[good]
        records = records[good]
        ones = np.arange(len(records) + 1, dtype=np.int32)
        columns = {
            "arrival_ns": pa.array(records["time"].astype(np.int64) * self.unit_ns),
            "input_tokens": pa.array(self._objects.tokens(records["size"])),
            "block_ids": pa.ListArray.from_arrays(ones, pa.array(records["id"].astype(np.uint64))),
            **self.extra_columns(records),
            ROW_COLUMN: pa.array(rows),
        }
        schema = make_schema(set(columns) - {ROW_COLUMN}).append(pa.field(ROW_COLUMN, pa.uint64()))
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def extra_columns(self, records: Records) -> dict[str, pa.Array]:
        """Columns beside time, size and id."""
        return {}


class OracleGeneralFormat(_BinaryFormat):
    """``time`` (s), ``id``, ``size`` (bytes) and the number of the next access, which is not needed."""

    name = "libcachesim-oracle"
    record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    unit_ns = NS_PER_S

    def plausible(self, records: Records) -> bool:
        return _next_accesses_fit(records)


class OracleGeneralOpNsFormat(_BinaryFormat):
    """As oracleGeneral, with an operation (a column ``type``) and a namespace (a column ``tenant``)."""

    name = "libcachesim-oracle-opns"
    record = np.dtype(
        [("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("op", "u1"), ("space", "<u2"), ("next", "<i8")]
    )
    unit_ns = NS_PER_S

    def plausible(self, records: Records) -> bool:
        return _next_accesses_fit(records)

    def extra_columns(self, records: Records) -> dict[str, pa.Array]:
        return {
            "tenant": pa.array(records["space"]).cast(pa.string()),
            "type": pa.array(records["op"]).cast(pa.string()),
        }


class VscsiFormat(_BinaryFormat):
    """Accesses to a virtual disk: ``size`` in bytes, the block number as ``id``, ``time`` in microseconds."""

    name = "libcachesim-vscsi"
    record = np.dtype(
        [
            ("serial", "<u4"),
            ("size", "<u4"),
            ("segments", "<u4"),
            ("command", "<u2"),
            ("version", "<u2"),
            ("id", "<u8"),
            ("time", "<u8"),
        ]
    )
    unit_ns = 1000

    def plausible(self, records: Records) -> bool:
        return bool((records["version"] >> 8 == VSCSI_MAJOR).all())


def _next_accesses_fit(records: Records) -> bool:
    """Whether each record's next access is none, or comes later and is of the same object.

    It is counted from 0 or from 1; of what lies beyond the first records, only the order is known.
    """
    at = np.arange(len(records))
    following = records["next"]
    used = ~np.isin(following, NEVER)
    if not bool((following[used] > at[used]).all()):
        return False
    fits = []
    for origin in (0, 1):
        target = following[used] - origin
        seen = target < len(records)
        fits.append(bool((records["id"][used][seen] == records["id"][target[seen]]).all()))
    return any(fits)


def _read_full(file: IO[bytes], size: int) -> bytes:
    """``size`` bytes, or what there is."""
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
