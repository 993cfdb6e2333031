"""What each tier of a stack did: the ``tiers`` part of a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.replays.tiers import TieredCore
from kvbench.results.rates import ratio
from kvbench.results.timeline import CHUNK_COUNTS, OTHER_COUNTS
from kvbench.serving.breakeven import break_even_tokens
from kvbench.serving.device import bytes_per_day, drive_writes_per_day

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.cache import StackedTier
    from kvbench.replays.plan import Plan
    from kvbench.replays.tierplan import TierPlan
    from kvbench.replays.timedengine import AnyEngine
    from kvbench.results.totals import Totals
    from kvbench.trace.reader import Trace

    Bools = npt.NDArray[np.bool_]


def tier_records(plan: Plan, trace: Trace, engine: AnyEngine, totals: Totals) -> list[dict[str, Any]]:
    """A record for each tier, fastest first; sums over all of its stores."""
    core = engine.core
    if not isinstance(core, TieredCore):
        return []
    blocks = [[_blocks_of(store) for store in stores] for stores in core.stores]
    orphans, distinct = _orphans(core, blocks), [_distinct(stores) for stores in blocks]
    return [
        _record(
            plan, tier, core.capacities[level], core.stores[level], (orphans[level], distinct[level]), trace, totals
        )
        for level, tier in enumerate(core.tiers)
    ]


def _record(
    plan: Plan,
    tier: TierPlan,
    capacity: int | None,
    stores: list[StackedTier],
    resident: tuple[int, int],
    trace: Trace,
    totals: Totals,
) -> dict[str, Any]:
    orphan_chunks, distinct_chunks = resident
    counts = _with_probes(_summed(stores), tier.config.probes)
    # The requests that count may be fewer than those that the stores served, as with a warm-up.
    counts["hit_blocks"] = totals.counts.get(f"hit_{tier.name}_blocks", 0)
    chunk, size = tier.config.chunk, tier.chunk_bytes
    tokens = trace.facts.block_tokens or 0
    hit_tokens = counts["hit_blocks"] * tokens
    record: dict[str, Any] = {
        "tier": tier.name,
        "scope": tier.config.scope,
        "stores": len(stores),
        "policy": None if tier.policy is None else tier.policy.to_dict(),
        "capacity_blocks": None if capacity is None else capacity * chunk,
        "capacity_tokens": None if capacity is None else capacity * chunk * tokens,
        "capacity_bytes": _times(capacity, size),
        "unused_bytes": _unused(tier, capacity),
        "all_stores_blocks": None if capacity is None else capacity * chunk * len(stores),
        "all_stores_bytes": _times(None if capacity is None else capacity * len(stores), size),
        "host_stores": _host_stores(plan, tier),
        "used_blocks": sum(store.used for store in stores) * chunk,
        "distinct_used_blocks": distinct_chunks * chunk,
        "orphan_blocks": orphan_chunks * chunk,
        "orphan_bytes": _times(orphan_chunks, size),
        "token_rate": ratio(hit_tokens, totals.input_tokens),
        "hit_tokens": hit_tokens,
        **{name: counts[name] for name in OTHER_COUNTS},
        **{f"{name}_blocks": counts[f"{name}_chunks"] * chunk for name in CHUNK_COUNTS},
        **{name: counts[name] for name in ("failed_gets", "failed_puts", "retries")},
        **{f"{name}_bytes": _times(counts[f"{name}_chunks"], size) for name in BYTES},
        "operations_per_hit_chunk": _operations_per_hit(counts, tier.config.probes),
        "retention": _retention(counts, stores, chunk),
        **_device_figures(plan, tier, counts, trace, totals, len(stores) * capacity if capacity is not None else None),
    }
    record["flags"] = _flags(record)
    return record


BYTES = ("read", "written", "promoted", "promoted_used", "duplicate")
"""Counters of chunks that are given in bytes, too."""


def _summed(stores: list[StackedTier]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for store in stores:
        for name, value in store.counters().items():
            counts[name] = max(counts.get(name, 0), value) if name == "age_max_ns" else counts.get(name, 0) + value
    return counts


def _with_probes(counts: dict[str, int], probes: int) -> dict[str, int]:
    """Operations where each chunk is asked for and read by itself (``probes`` presence tests a hit chunk;
    the request's first missing chunk is asked for once)."""
    if not probes:
        return counts
    reads = counts["read_chunks"]
    return counts | {"read_operations": reads, "lookup_operations": counts["lookup_operations"] + probes * reads}


def _operations_per_hit(counts: dict[str, int], probes: int) -> float | None:
    """Presence tests and reads for a chunk that hit, those of requests that miss left out."""
    reads = counts["read_chunks"]
    if probes:
        return float(probes + 1) if reads else None
    return ratio(2 * counts["read_operations"], reads)


def _times(count: int | None, size: int | None) -> int | None:
    return None if count is None or size is None else count * size


def _host_stores(plan: Plan, tier: TierPlan) -> int | None:
    """Stores of one host; None for a tier that hosts share."""
    if tier.config.scope == "cluster":
        return None
    return min(plan.config.workers_per_host, plan.config.workers) // tier.group * tier.ranks


def _unused(tier: TierPlan, capacity: int | None) -> int | None:
    """Bytes of a store's capacity that are too few for one more chunk."""
    from kvbench.units import BYTE_UNITS, parse_bytes, split_quantity

    text = str(tier.config.capacity)
    if capacity is None or tier.chunk_bytes is None or split_quantity(text)[1] not in BYTE_UNITS:
        return None
    return parse_bytes(text) - capacity * tier.chunk_bytes


def _retention(counts: dict[str, int], stores: list[StackedTier], chunk: int) -> dict[str, Any]:
    """How old blocks were when they were evicted, since they were stored in the tier."""
    ages = [sum(at) for at in zip(*(store.ages_log2() for store in stores), strict=True)]
    count = counts["age_chunks"]
    below, median = 0, None
    for bucket, found in enumerate(ages):
        below += found
        if count and 2 * below >= count:
            median = 2 ** (bucket + 1) - 1
            break
    return {
        "evicted_blocks": count * chunk,
        "mean_s": None if not count else counts["age_sum_ns"] / count / 1e9,
        "median_at_most_s": None if median is None else median / 1e9,
        "max_s": None if not count else counts["age_max_ns"] / 1e9,
    }


def _device_figures(
    plan: Plan, tier: TierPlan, counts: dict[str, int], trace: Trace, totals: Totals, all_chunks: int | None
) -> dict[str, Any]:
    """Bytes as times of the device, and wear; null where the device or the sizes are not known."""
    device, size = tier.device, tier.chunk_bytes
    duration_ns = totals.duration_ns
    written = _times(counts["written_chunks"], size)
    figures: dict[str, Any] = {
        "device": None if device is None else device.name,
        "rated_drive_writes_per_day": None if device is None else device.rated_drive_writes_per_day,
        "written_bytes_per_day": None if written is None else bytes_per_day(written, duration_ns),
        "drive_writes_per_day": None,
        "read_busy_ns": None,
        "write_busy_ns": None,
        "lookup_ns": None,
        "break_even_tokens": None,
    }
    if written is not None and all_chunks is not None and size is not None:
        figures["drive_writes_per_day"] = drive_writes_per_day(written, all_chunks * size, duration_ns)
    if device is None or size is None or written is None:
        return figures
    figures["read_busy_ns"] = device.busy_read_ns(counts["read_chunks"] * size)
    figures["write_busy_ns"] = device.busy_write_ns(written)
    figures["lookup_ns"] = device.lookup_ns * counts["lookup_operations"]
    rate, tokens = plan.config.prefill_tokens_per_s, trace.facts.block_tokens
    if rate is not None and tokens is not None:
        figures["break_even_tokens"] = break_even_tokens(device, size // (tier.config.chunk * tokens), rate)
    return figures


def _flags(record: dict[str, Any]) -> list[str]:
    """``idle``: nothing was written and nothing read. ``write-only``: written, and never hit."""
    if record["hit_blocks"] == 0 and record["written_blocks"] > 0:
        return ["write-only"]
    return ["idle"] if record["hit_blocks"] == 0 and record["written_blocks"] == 0 else []


def _distinct(stores: list[Blocks]) -> int:
    """Chunks of a tier at the end, those that several of its stores hold counted once."""
    return len(np.unique(np.concatenate([keys for keys, _, _ in stores])))


def _orphans(core: TieredCore, blocks: list[list[Blocks]]) -> list[int]:
    """Chunks of each tier that cannot hit, because a block before them is in no tier that goes with them."""
    if not core.tiers:
        return []
    alive = [[np.zeros(store.used, dtype=bool) for store in stores] for stores in core.stores]
    for worker in range(core.plan.config.workers):
        places = [
            (level, worker // tier.group * tier.ranks + rank)
            for level, tier in enumerate(core.tiers)
            for rank in range(tier.ranks)
        ]
        reached = reachable([blocks[level][index] for level, index in places])
        for (level, index), found in zip(places, reached, strict=True):
            alive[level][index] |= found
    return [sum(int((~each).sum()) for each in stores) for stores in alive]


Blocks = tuple["npt.NDArray[np.uint64]", "npt.NDArray[np.uint64]", "npt.NDArray[np.int32]"]


def _blocks_of(store: StackedTier) -> Blocks:
    """Keys, keys of the chunks before them, and the positions of their last blocks."""
    keys, parents = np.empty(store.used, np.uint64), np.empty(store.used, np.uint64)
    depths = np.empty(store.used, np.int32)
    store.read_blocks(keys, parents, depths)
    return keys, np.where(depths > 0, parents, keys), (depths + 1) * store.multiple - 1


def reachable(places: list[Blocks]) -> list[Bools]:
    """For each chunk of each place whether its whole prefix is in one of the places. A first chunk is
    its own parent. Chunks are gone through by the position of their last block, so that the answer
    for what comes before is known."""
    keys = np.concatenate([place[0] for place in places])
    parents = np.concatenate([place[1] for place in places])
    ends = np.concatenate([place[2] for place in places])
    known = np.sort(keys)
    at = np.searchsorted(known, keys)
    before = np.minimum(np.searchsorted(known, parents), max(len(known) - 1, 0))
    first = keys == parents
    candidate = first | (known[before] == parents) if len(known) else first
    key_reached = np.zeros(len(known), dtype=bool)
    reached = np.zeros(len(keys), dtype=bool)
    order = np.argsort(ends, kind="stable")
    for level in np.split(order, np.flatnonzero(np.diff(ends[order])) + 1):
        reached[level] = candidate[level] & (first[level] | key_reached[before[level]])
        key_reached[at[level[reached[level]]]] = True
    return list(np.split(reached, np.cumsum([len(place[0]) for place in places])[:-1]))
