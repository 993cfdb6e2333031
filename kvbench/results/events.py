"""The ``events`` table: one row a change of residency (semantics §7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS, EVENT_REASONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvbench.cache import EventLog
    from kvbench.trace.columns import Int64s

EVENTS_SCHEMA = pa.schema(
    [
        pa.field("request", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("worker", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("reason", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("tier", pa.string(), nullable=False),
        pa.field("store", pa.int32(), nullable=False),
        pa.field("source_tier", pa.string()),
        pa.field("source_store", pa.int32()),
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("parent", pa.uint64()),
    ]
)
"""``time_ns`` is the arrival of the request that caused the event; in timed replay, when it happened.
``worker`` served the request that caused the event, ``sequence`` counts a worker's events from 0.
``tier`` and ``store`` say where the block is now, or which place it left (DELETE); ``source_tier``
and ``source_store`` where a MOVE or COPY took it from. A tier has a store for each worker (or rank,
or host; one for a cluster), numbered in their order. ``parent`` is the key of the block before, null
for a first block and for DELETE. Folding the rows from the start gives what is resident at every point."""


def events_batch(log: EventLog, first: int, arrival_ns: Int64s, tiers: list[str]) -> pa.RecordBatch:
    """The events in ``log``, caused by requests whose first is number ``first`` of the replay
    and whose arrivals are ``arrival_ns``; ``tiers`` has the names of the tiers."""
    events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
    return _batch(events, arrival_ns[events["request"] - first], tiers)


def timed_events_batch(log: EventLog, times: Sequence[tuple[int, int]], tiers: list[str]) -> pa.RecordBatch:
    """The events in ``log`` of a timed replay; ``times`` has how many of them, one after another, happened at one
    time, and when that was."""
    counts, times_ns = np.array(times, np.int64).reshape(-1, 2).T
    events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
    return _batch(events, np.repeat(times_ns, counts), tiers)


def _batch(events: npt.NDArray[np.void], time_ns: Int64s, tiers: list[str]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array(events["request"]),
            pa.array(time_ns),
            pa.array(events["worker"]),
            pa.array(events["sequence"]),
            pa.DictionaryArray.from_arrays(pa.array(events["kind"].astype(np.int8)), list(EVENT_KINDS)),
            pa.DictionaryArray.from_arrays(pa.array(events["reason"].astype(np.int8)), list(EVENT_REASONS)),
            _names(events["tier"], tiers),
            pa.array(events["store"]),
            _names(events["source"], tiers),
            pa.array(events["source_store"], mask=events["source_store"] < 0),
            pa.array(events["key"]),
            pa.array(events["parent"], mask=events["has_parent"] == 0),
        ],
        schema=EVENTS_SCHEMA,
    )


def _names(levels: npt.NDArray[np.uint8], tiers: list[str]) -> pa.Array:
    """The name of each level; null where there is none."""
    known = levels < len(tiers)
    return pa.array(tiers, pa.string()).take(pa.array(np.where(known, levels, 0), mask=~known))
