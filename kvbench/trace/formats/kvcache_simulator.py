"""Input of KVCache.AI's kvcache-simulator, JSONL: ``block_size``, ``hash_ids`` and ``input_length`` a line.

There are no times: the order of the lines is the order of the requests, and all arrive at 0. The
block size is the first line's. The file does not say whether a partial last block has an id: it has
none if the ids of some line are too few for one, and none too many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.fields import BadValue, BatchMaker, decoded, id_array, json_keys, say_once, whole
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

NO_TIMES = "the file has no times: all requests arrive at 0, in the order of the file"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    block_size: int
    hash_ids: list[int]
    input_length: int


class KvcacheSimulatorFormat(TraceFormat):
    """See the module."""

    def __init__(self) -> None:
        self._block_tokens: int | None = None
        self._fits = {"ceil": True, "floor": True}

    def sniff(self, head: bytes, name: str) -> bool:
        keys = json_keys(head)
        return "block_size" in keys and "requests" not in keys and bool({"hash_ids", "input_length"} & keys)

    def facts(self) -> TraceFacts:
        tail_rule = "floor" if self._fits["floor"] and not self._fits["ceil"] else "ceil"
        return TraceFacts(block_tokens=self._block_tokens, tail_rule=tail_rule, source_format="kvcache-simulator")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        say_once(log, NO_TIMES)
        decoder = msgspec.json.Decoder(_Line)
        batch = BatchMaker("arrival_ns", "input_tokens", "block_ids")
        for number, line in lines:
            try:
                self._add(batch, number, decoded(decoder, line))
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
            if batch.is_full:
                yield from batch.flush()
        yield from batch.flush()

    def _add(self, batch: BatchMaker, number: int, line: _Line) -> None:
        size = whole("block_size", line.block_size)
        if size == 0:
            raise BadValue("block_size", size, "must be 1 at least")
        if self._block_tokens is None:
            self._block_tokens = size
        if size != self._block_tokens:
            raise BadValue("block_size", size, f"is not that of the first line, {self._block_tokens}")
        tokens, count = whole("input_length", line.input_length), len(line.hash_ids)
        batch.add(number, arrival_ns=0, input_tokens=tokens, block_ids=id_array("hash_ids", line.hash_ids))
        self._fits["floor"] &= count == tokens // size
        self._fits["ceil"] &= count == -(-tokens // size)
