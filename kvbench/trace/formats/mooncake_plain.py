"""The usual rows of a Mooncake file, some megabytes at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.trace.formats import ROW_COLUMN, mooncake_scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.trace.columns import Int64s
    from kvbench.trace.formats.mooncake import Sessions


COLUMNS = 10
"""What :func:`scan_turns` says of a row; the first five of them :func:`scan_rows` says."""


class PlainReader:
    """Reads chunks of whole lines whose rows are usual: the fields of the released files and, where they are turns of
    sessions, ``session_id``, ``delay`` and ``request_id``, each at most once and no other.

    ``sessions`` knows the rows before. The room that chunks are scanned into is kept.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._columns = np.empty((COLUMNS, 0), np.int64)
        self._ids = np.empty(0, np.uint64)

    def batch(self, chunk: bytes, first: int) -> pa.RecordBatch | None:
        """The rows of ``chunk``, whose first line is line ``first``; None unless all are usual and good.

        For all else, errors included, the caller must read line by line.
        """
        self._make_room(len(chunk))
        lines, arrivals, tokens, outputs, lengths = self._columns[:5]
        rows, ids = mooncake_scan.scan_rows(chunk, lines, arrivals, tokens, outputs, lengths, self._ids)
        if rows >= 0:
            return _batch({"arrival_ns": pa.array(arrivals[:rows].copy())} | self._requests(rows, ids, first))
        rows, ids = mooncake_scan.scan_turns(chunk, self._columns, self._ids)
        if rows < 0:
            return None
        turns = self._turns(chunk, rows)
        return None if turns is None else _batch(turns | self._requests(rows, ids, first))

    def _requests(self, rows: int, ids: int, first: int) -> dict[str, pa.Array]:
        """What stands in any row."""
        lines, _, tokens, outputs, lengths = self._columns[:5, :rows]
        offsets = np.zeros(rows + 1, np.int32)
        np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
        values = pa.array(self._ids[:ids].copy())
        return {
            "input_tokens": pa.array(tokens.astype(np.uint32)),
            "output_tokens": pa.array(outputs.astype(np.uint32), mask=outputs < 0),
            "block_ids": pa.ListArray.from_arrays(pa.array(offsets), values, mask=_lacking(lengths)),
            ROW_COLUMN: pa.array((lines + first).astype(np.uint64)),
        }

    def _turns(self, chunk: bytes, rows: int) -> dict[str, pa.Array] | None:
        """What the rows before have a say in; None where a row contradicts them, or a name is no text."""
        arrivals, delays = self._columns[1, :rows], self._columns[5, :rows]
        try:
            sessions = _texts(chunk, self._columns[6, :rows], self._columns[7, :rows])
            requests = _texts(chunk, self._columns[8, :rows], self._columns[9, :rows])
        except UnicodeDecodeError:
            return None
        followed = self._sessions.follow(sessions, requests, arrivals.tolist(), delays.tolist())
        if followed is None:
            return None
        return {
            "arrival_ns": pa.array(followed.arrivals, pa.int64()),
            "request_id": pa.array(requests, pa.string()),
            "session_id": pa.array(sessions, pa.string()),
            "turn": pa.array(followed.turns, pa.uint32()),
            "think_time_ns": pa.array(delays.copy(), mask=delays < 0),
        }

    def _make_room(self, size: int) -> None:
        """Room for what ``size`` bytes may hold."""
        if len(self._ids) <= size // 2:
            self._ids = np.empty(size // 2 + 1, np.uint64)
            self._columns = np.empty((COLUMNS, size // mooncake_scan.SMALLEST_ROW + 1), np.int64)


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _texts(chunk: bytes, begins: Int64s, ends: Int64s) -> Sequence[str | None]:
    """The texts that stand in ``chunk`` from each begin to its end, None where it is -1. Raises UnicodeDecodeError."""
    if len(begins) == 0 or int(begins.max()) < 0:
        return [None] * len(begins)
    places = zip(begins.tolist(), ends.tolist(), strict=True)
    return [None if begin < 0 else chunk[begin:end].decode() for begin, end in places]


def _lacking(lengths: Int64s) -> pa.Array | None:
    lacking = lengths < 0
    return pa.array(lacking) if lacking.any() else None
