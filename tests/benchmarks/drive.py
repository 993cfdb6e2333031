"""Drives the compiled order replay over a stream, without reading or recording anything."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

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
    cacheable = np.diff(stream.offsets).astype(np.int32)
    rows = np.zeros((BATCH, len(COUNTS)), dtype=np.int32)
    sums = np.zeros(len(COUNTS), dtype=np.int64)
    seconds = 0.0
    for start in range(0, stream.requests, BATCH):
        stop = min(stream.requests, start + BATCH)
        batch = rows[: stop - start]
        began = clock()
        engine.run(stream.ids, stream.offsets[start : stop + 1], cacheable[start:stop], batch, next_use=next_use)
        seconds += clock() - began
        sums += batch.sum(axis=0, dtype=np.int64)
    return dict(zip(COUNTS, sums.tolist(), strict=True)), seconds
