"""The usual rows of a Mooncake file, a megabyte at a time, without an object for each id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from kvbench.trace.formats import ROW_COLUMN
from kvbench.trace.jsonids import parse_id_lists

if TYPE_CHECKING:
    from kvbench.trace.columns import Int64s

NEW_LINE, QUOTE, COMMA, OPEN, CLOSE = b'\n",{}'
NS_PER_MS = 1_000_000
MAX_WHOLE_MS = (2**63 - 1) // NS_PER_MS
MAX_FLOAT_MS = 2**53 // NS_PER_MS
"""Up to here a float times :data:`NS_PER_MS` is a whole number of nanoseconds as good as any."""


class _PlainRow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    timestamp: int | float
    input_length: int
    output_length: int | msgspec.UnsetType | None = msgspec.UNSET
    hash_ids: msgspec.Raw = msgspec.Raw()


_DECODER = msgspec.json.Decoder(_PlainRow)


def plain_batch(chunk: bytes, first: int) -> pa.RecordBatch | None:
    """The rows of whole lines, the first of which is line ``first``; None unless all are usual and good.

    A usual row has the four fields of the released files, each once and no other, and a line of its
    own. For all else, errors included, the caller must read line by line.
    """
    text = chunk.replace(b"\r\n", b"\n") if b"\r" in chunk else chunk
    text = text.removesuffix(b"\n")
    try:
        rows = _DECODER.decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    characters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(characters == NEW_LINE)
    if len(ends) + 1 != len(rows) or (characters[ends - 1] != CLOSE).any() or (characters[ends + 1] != OPEN).any():
        return None
    outputs = [row.output_length for row in rows]
    ids = _id_lists([row.hash_ids for row in rows])
    arrivals = _nanoseconds([row.timestamp for row in rows])
    if ids is None or arrivals is None:
        return None
    column, with_ids = ids
    quotes = int(np.count_nonzero(characters == QUOTE))
    if quotes != 2 * (3 * len(rows) - outputs.count(msgspec.UNSET) + with_ids):
        # A field stands twice, or has text for a value.
        return None
    try:
        tokens = pa.array([row.input_length for row in rows], pa.uint32())
        output_tokens = pa.array([None if output is msgspec.UNSET else output for output in outputs], pa.uint32())
    except (pa.ArrowInvalid, OverflowError):
        return None
    lines = pa.array(np.arange(first, first + len(rows), dtype=np.uint64))
    names = ["arrival_ns", "input_tokens", "output_tokens", "block_ids", ROW_COLUMN]
    return pa.RecordBatch.from_arrays([pa.array(arrivals), tokens, output_tokens, column, lines], names=names)


def _nanoseconds(milliseconds: list[int | float]) -> Int64s | None:
    """Whole nanoseconds, as the row by row reader has them; None if it must see to them."""
    times = np.array(milliseconds)
    if times.dtype == np.int64 and times.min() >= 0 and times.max() <= MAX_WHOLE_MS:
        return times * NS_PER_MS
    if times.dtype == np.float64 and times.min() >= 0 and times.max() <= MAX_FLOAT_MS:
        return np.rint(times * NS_PER_MS).astype(np.int64)
    return None


def _id_lists(lists: list[msgspec.Raw]) -> tuple[pa.Array, int] | None:
    """A list column of JSON arrays, null where there is none, and in how many rows there was the field.

    None if one of them is something else.
    """
    text = b"\n".join(lists)
    values = np.empty(int(np.count_nonzero(np.frombuffer(text, np.uint8) == COMMA)) + len(lists), np.uint64)
    lengths = np.empty(len(lists), np.int64)
    if parse_id_lists(text, values, lengths) >= 0:
        return None
    with_ids = int(np.count_nonzero(lengths != -1))
    mask = pa.array(lengths < 0) if lengths.min() < 0 else None
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[: offsets[-1]]), mask=mask), with_ids
