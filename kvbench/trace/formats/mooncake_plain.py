"""The usual rows of a Mooncake file, a megabyte at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.trace.formats import ROW_COLUMN
from kvbench.trace.formats.mooncake_scan import SMALLEST_ROW, scan_rows

if TYPE_CHECKING:
    from kvbench.trace.columns import Int64s

NAMES = ["arrival_ns", "input_tokens", "output_tokens", "block_ids", ROW_COLUMN]


def plain_batch(chunk: bytes, first: int) -> pa.RecordBatch | None:
    """The rows of whole lines, the first of which is line ``first``; None unless all are usual and good.

    A usual row has the four fields of the released files, each at most once and no other. For all else,
    errors included, the caller must read line by line.
    """
    room = len(chunk) // SMALLEST_ROW + 1
    lines, arrivals, tokens, outputs, lengths = np.empty((5, room), np.int64)
    values = np.empty(len(chunk) // 2 + 1, np.uint64)
    rows, ids = scan_rows(chunk, lines, arrivals, tokens, outputs, lengths, values)
    if rows < 0:
        return None
    lengths = lengths[:rows]
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    block_ids = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[:ids].copy()), mask=_lacking(lengths))
    columns = [
        pa.array(arrivals[:rows].copy()),
        pa.array(tokens[:rows].astype(np.uint32)),
        pa.array(outputs[:rows].astype(np.uint32), mask=outputs[:rows] < 0),
        block_ids,
        pa.array((lines[:rows] + first).astype(np.uint64)),
    ]
    return pa.RecordBatch.from_arrays(columns, names=NAMES)


def _lacking(lengths: Int64s) -> pa.Array | None:
    lacking = lengths < 0
    return pa.array(lacking) if lacking.any() else None
