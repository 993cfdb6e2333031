"""Runs a policy over a stream of ids, for tests against published counts and naive models."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from kvbench.cache import EventLog, Tier
from kvbench.eviction import PolicyContext
from kvbench.plugins import load_registry
from kvbench.replays.order import COUNTS, OrderReplay
from kvbench.specs import EvictionPolicySpec


def dense(ids: np.ndarray) -> np.ndarray:
    """The same stream with ids 0, 1, 2, … in first-seen order."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.uint64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.uint64)
    return rank[inverse]


def cloud_physics(shared: Path) -> np.ndarray:
    """The libCacheSim sample: 113,872 requests for one object each."""
    with gzip.open(shared / "traces/libcachesim/cloudPhysicsIO.txt.gz", "rt") as lines:
        return dense(np.array([int(line) for line in lines if line.strip()], dtype=np.uint64))


def mooncake(shared: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Ids and offsets of a Mooncake trace (``conversation`` or ``synthetic``)."""
    ids: list[int] = []
    offsets = [0]
    with gzip.open(shared / f"traces/mooncake/{name}_trace.jsonl.gz") as lines:
        for line in lines:
            ids += json.loads(line)["hash_ids"]
            offsets.append(len(ids))
    return np.array(ids, dtype=np.uint64), np.array(offsets, dtype=np.int64)


def zipf(requests: int, objects: int, seed: int) -> np.ndarray:
    """Zipf(1.0) draws as dense ids."""
    weights = np.cumsum(1 / np.arange(1, objects + 1))
    draws = np.random.Generator(np.random.PCG64(seed)).random(requests)
    return dense(np.searchsorted(weights / weights[-1], draws).astype(np.uint64))


def make(name: str, capacity: int, seed: int = 0, **params: Any) -> Any:
    """A registered policy with its declared defaults and ``params``."""
    spec = load_registry(autoload=False).get(EvictionPolicySpec, name)
    return spec.load()(PolicyContext(capacity, seed), **spec.parse_params(params))


def replay(
    policy: Any, ids: np.ndarray, offsets: np.ndarray | None = None, order: str = "access", **facts: Any
) -> tuple[Counter[str], Tier]:
    """Sums of the counts over all requests (one block each without ``offsets``), and the tier.

    ``resident_blocks`` is what a plain simulator calls hits; ``hit_blocks`` the prefix hits.
    """
    if offsets is None:
        offsets = np.arange(len(ids) + 1, dtype=np.int64)
    tier = Tier(policy, order=order, dense=True)
    rows = np.zeros((len(offsets) - 1, len(COUNTS)), dtype=np.int32)
    OrderReplay([tier]).run(ids, offsets, np.diff(offsets).astype(np.int32), rows, **facts)
    return Counter(dict(zip(COUNTS, rows.sum(axis=0, dtype=np.int64).tolist(), strict=True))), tier


def hits(name: str, ids: np.ndarray, capacity: int, offsets: np.ndarray | None = None, **params: Any) -> int:
    """Blocks found resident, block by block: what libCacheSim counts."""
    return replay(make(name, capacity, **params), ids, offsets)[0]["resident_blocks"]


def evictions(policy: Any, requests: list[list[int]], order: str = "tail-first") -> list[int]:
    """Evicted keys in order, over a few small requests."""
    log = EventLog()
    tier = Tier(policy, order=order, log=log)
    for request in requests:
        tier.serve(np.array(request, dtype=np.uint64))
    from kvbench.cache.events import EVENT_FIELDS

    events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
    return events["key"][events["kind"] == 1].tolist()
