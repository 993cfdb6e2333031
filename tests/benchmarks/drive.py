"""Drives the compiled order replay over a stream, through a tier or a stack, without reading or recording anything."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.streams import Stream

BATCH = 65_536


def replay(
    stream: Stream,
    capacity: int,
    order: str,
    policy: Callable[..., Any],
    *,
    dense: bool = True,
    next_use: np.ndarray | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, int], float]:
    """The sums of all counts, and the seconds that serving took. The seen set is exact.

    ``dense`` makes use of the ids being 0 … U-1; without it they are keys like any others.
    ``next_use`` goes with the ids, for policies that look ahead.
    """
    from kvbench.cache import Tier, make_seen
    from kvbench.eviction import PolicyContext
    from kvbench.replays.order import COUNTS, OrderReplay

    tier = Tier(policy(PolicyContext(capacity)), order=order, dense=dense)
    engine = OrderReplay([tier], seen=make_seen(dense, tier.direct_table))

    def serve(offsets: np.ndarray, cacheable: np.ndarray, rows: np.ndarray, others: np.ndarray) -> None:
        engine.run(stream.ids, offsets, cacheable, rows, next_use=next_use)

    return _drive(stream, list(COUNTS), [], serve, clock)


def replay_stack(
    stream: Stream,
    capacities: Sequence[int],
    placement: str,
    policy: Callable[..., Any],
    *,
    dense: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, int], float]:
    """The same through a stack of tiers of these capacities, the fastest first, tail first.

    The sums have ``hit_0``, ``hit_1``, … as well: the blocks that each tier delivered.
    """
    from kvbench.cache import StackedTier, TierStack, make_seen
    from kvbench.eviction import PolicyContext
    from kvbench.replays.order import COUNTS
    from kvbench.replays.tiered import TieredReplay, tier_columns
    from kvbench.replays.tierplan import PLACEMENTS

    how, last = PLACEMENTS[placement], len(capacities) - 1
    seen = make_seen(dense)
    tiers = [
        StackedTier(
            policy(PolicyContext(capacity)),
            dense=dense,
            level=level,
            name=f"tier {level}",
            write=how["write"] if level else "through",
            promotion=how["promotion"] if level < last else "none",
            seen=seen,
        )
        for level, capacity in enumerate(capacities)
    ]
    if how["write"] == "back":
        for above, below in itertools.pairwise(tiers):
            above.link_below(below)
    engine = TieredReplay([TierStack([[tier] for tier in tiers])], seen=seen)

    def serve(offsets: np.ndarray, cacheable: np.ndarray, rows: np.ndarray, others: np.ndarray) -> None:
        engine.run_tiers(stream.ids, offsets, cacheable, rows, others)

    return _drive(stream, list(COUNTS), tier_columns(len(tiers)), serve, clock)


def _drive(
    stream: Stream, counts: list[str], others: list[str], serve: Callable[..., None], clock: Callable[[], float]
) -> tuple[dict[str, int], float]:
    """Serve the stream batch by batch; the clock runs while blocks are served."""
    cacheable = np.diff(stream.offsets).astype(np.int32)
    rows = np.zeros((BATCH, len(counts)), dtype=np.int32)
    other_rows = np.zeros((BATCH, len(others)), dtype=np.int32)
    sums = np.zeros(len(counts) + len(others), dtype=np.int64)
    seconds = 0.0
    for start in range(0, stream.requests, BATCH):
        stop = min(stream.requests, start + BATCH)
        batch, other_batch = rows[: stop - start], other_rows[: stop - start]
        began = clock()
        serve(stream.offsets[start : stop + 1], cacheable[start:stop], batch, other_batch)
        seconds += clock() - began
        sums += np.concatenate([batch.sum(axis=0, dtype=np.int64), other_batch.sum(axis=0, dtype=np.int64)])
    return dict(zip([*counts, *others], sums.tolist(), strict=True)), seconds
