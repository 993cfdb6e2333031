"""The ``timeline`` table: a row for each store at each sample (semantics §12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.replays.tierplan import TierPlan
    from kvbench.replays.tiers import Sample, Store

CHUNK_COUNTS = (
    *("read", "written", "computed", "promoted", "promoted_used", "demoted", "staged", "moved_up", "moved_down"),
    *("evicted_room", "evicted_watermark", "dropped_faulty"),
    *("refused_admission", "refused_room", "refused_fault", "refused_frozen", "duplicate"),
)
"""Counters in chunks; the table has them in blocks."""

OTHER_COUNTS = (
    "hit_blocks",
    "overlap_blocks",
    "lost_blocks",
    "read_operations",
    "write_operations",
    "lookup_operations",
)

TIMELINE_SCHEMA = pa.schema(
    [
        pa.field("requests", pa.int64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("tier", pa.string(), nullable=False),
        pa.field("store", pa.int32(), nullable=False),
        pa.field("pinned_blocks", pa.int64(), nullable=False),
        pa.field("reusable_blocks", pa.int64(), nullable=False),
        pa.field("free_blocks", pa.int64()),
        *(pa.field(f"{name}_blocks", pa.int64(), nullable=False) for name in CHUNK_COUNTS),
        *(pa.field(name, pa.int64(), nullable=False) for name in OTHER_COUNTS),
        pa.field("read_bytes", pa.int64()),
        pa.field("written_bytes", pa.int64()),
    ]
)
"""``requests`` were served, the last of which arrived at ``time_ns``. Pinned, reusable and free blocks
add up to the store's capacity; free ones are null where it has no bound. All other columns count
from the start of the replay. Bytes are null where the size of a block is not known."""


def timeline_batch(
    samples: Sequence[Sample], tiers: Sequence[TierPlan], capacities: Sequence[int | None]
) -> pa.RecordBatch:
    """The rows of ``samples``."""
    rows = [
        {
            "requests": sample.requests,
            "time_ns": sample.time_ns,
            **store_row(store, tiers[store.level], capacities[store.level]),
        }
        for sample in samples
        for store in sample.stores
    ]
    return pa.RecordBatch.from_pylist(rows, schema=TIMELINE_SCHEMA)


def store_row(store: Store, tier: TierPlan, capacity: int | None) -> dict[str, Any]:
    """One store of ``tier``, each with room for ``capacity`` chunks (None: without bound)."""
    chunk, size, counts = tier.config.chunk, tier.chunk_bytes, store.counts
    return {
        "tier": tier.name,
        "store": store.index,
        "pinned_blocks": store.pinned_chunks * chunk,
        "reusable_blocks": (store.used_chunks - store.pinned_chunks) * chunk,
        "free_blocks": None if capacity is None else (capacity - store.used_chunks) * chunk,
        **{f"{name}_blocks": counts[f"{name}_chunks"] * chunk for name in CHUNK_COUNTS},
        **{name: counts[name] for name in OTHER_COUNTS},
        "read_bytes": None if size is None else counts["read_chunks"] * size,
        "written_bytes": None if size is None else counts["written_chunks"] * size,
    }
