"""LMCache's logs of hashes: what was looked up (with lengths), and the chunks of each lookup (without).

Hashes are hexadecimal, of 64 bits or whole digests, or numbers; see :func:`kvbench.trace.formats.ids.id_of`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.derived import fill_blocks
from kvbench.trace.formats.ids import IdLists
from kvbench.trace.formats.tablefiles import JsonTable, first_object
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import TOKENS, Seconds, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

HASHES = IdLists()
CHUNK_TOKENS = 256
"""LMCache's default; the log of chunk hashes does not say."""
DTYPE_BYTES = {
    **dict.fromkeys(("uint8", "int8", "float8_e4m3fn", "float8_e5m2", "fp8", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("bfloat16", "float16", "half"), 2),
    **dict.fromkeys(("float32", "float"), 4),
}
MAX_DIMENSIONS = 8


def _keys(head: bytes) -> set[str]:
    """The keys of the first line, or those in the part of it that the head holds."""
    row = first_object(head)
    if row is not None:
        return set(row)
    if not head.lstrip().startswith(b"{"):
        return set()
    return {name.decode() for name in re.findall(rb'"(\w+)"\s*:', head.split(b"\n")[0])}


class LookupFormat(TraceFormat):
    """The log of lookups: ``seq_len`` tokens in chunks of ``chunk_size``, of which only full ones have a hash."""

    absolute_times = True

    def __init__(self) -> None:
        self._chunk_tokens: int | None = None

    def sniff(self, head: bytes, name: str) -> bool:
        return {"timestamp", "seq_len", "chunk_hashes"} <= _keys(head)

    def facts(self) -> TraceFacts:
        return TraceFacts(self._chunk_tokens, "floor", id_scope="global", source_format="lmcache-lookup")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        used = {"timestamp", "seq_len", "chunk_hashes", "chunk_size", "request_id", "model_name", "shapes", "dtypes"}
        first = True
        for piece in JsonTable(lines).pieces():
            if first and piece.rows:
                self._note_bytes(lines.name, piece.rows[0], log)
                first = False
            rows = Rows(piece)
            rows.read("arrival_ns", "timestamp", Seconds(9), required=True)
            rows.read("input_tokens", "seq_len", TOKENS, required=True)
            rows.take("block_ids", "chunk_hashes", piece.lists("chunk_hashes", HASHES), required=True)
            rows.read("request_id", "request_id", as_text)
            rows.read("model", "model_name", as_text)
            self._one_chunk_size(rows)
            piece.count(log.ignored_fields, used)
            yield rows.batch(lines.name, log)

    def _note_bytes(self, where: str, row: dict[str, Any], log: ReadLog) -> None:
        """Says what a chunk takes, of the first row that has shapes and types."""
        size = _chunk_bytes(row.get("shapes"), row.get("dtypes"))
        if size:
            log.notes.append(f"{where}: a chunk takes {size:,} bytes; replay it with --block-bytes {size}")

    def _one_chunk_size(self, rows: Rows) -> None:
        for row, size in enumerate(rows.values("chunk_size", TOKENS).to_pylist()):
            if not size:
                rows.refuse(row, "chunk_size", size, "is missing" if size is None else "must be at least 1")
                continue
            if self._chunk_tokens is None:
                self._chunk_tokens = size
            if size != self._chunk_tokens:
                rule = f"the rows before have {self._chunk_tokens}, and a trace has one; import each size by itself"
                rows.refuse(row, "chunk_size", size, rule)


def _chunk_bytes(shapes: object, dtypes: object) -> int | None:
    """The bytes of a chunk of tensors with these shapes and types; None where they do not say."""
    if not isinstance(shapes, list) or not isinstance(dtypes, list) or len(shapes) != len(dtypes):
        return None
    total = 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        size = DTYPE_BYTES.get(str(dtype).removeprefix("torch."))
        good = isinstance(shape, list) and all(isinstance(extent, int) and 0 < extent < 2**32 for extent in shape)
        if size is None or not good or len(shape) > MAX_DIMENSIONS:
            return None
        total += size * math.prod(shape)
    return total


class ChunkHashesFormat(TraceFormat):
    """The log of chunk hashes: the partial last chunk has one, too. It says no lengths.

    ``chunk_tokens``  tokens of a chunk; prompts are taken to fill their last one.
    """

    absolute_times = True

    def __init__(self, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self._chunk_tokens = chunk_tokens

    def sniff(self, head: bytes, name: str) -> bool:
        keys = _keys(head)
        return {"timestamp", "chunk_hashes"} <= keys and "seq_len" not in keys

    def facts(self) -> TraceFacts:
        return TraceFacts(self._chunk_tokens, id_scope="global", source_format="lmcache-chunk-hashes")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        used = {"timestamp", "chunk_hashes", "lookup_id"}
        for piece in JsonTable(lines).pieces():
            rows = Rows(piece)
            rows.read("arrival_ns", "timestamp", Seconds(9), required=True)
            rows.take("block_ids", "chunk_hashes", piece.lists("chunk_hashes", HASHES), required=True)
            rows.read("request_id", "lookup_id", as_text)
            fill_blocks(rows, "chunk_hashes", self._chunk_tokens)
            piece.count(log.ignored_fields, used)
            yield rows.batch(lines.name, log)
        log.notes.append(
            f"{lines.name}: has no lengths, so each prompt is taken to fill its last chunk of "
            f"{self._chunk_tokens:,} tokens"
        )
