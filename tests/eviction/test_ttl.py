"""Blocks that expire, against a naive model and in hand-made streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import make

from kvbench.cache import Tier
from kvbench.replays.order import COUNTS, OrderReplay

SECOND_NS = 1_000_000_000


def serve(policy: Any, requests: list[tuple[float, list[int]]], order: str = "access") -> list[tuple[int, list[int]]]:
    """Blocks found resident, and the keys resident after it, for each request (arrival in seconds, keys)."""
    tier = Tier(policy, order=order)
    replay = OrderReplay([tier])
    told = []
    for arrival, keys in requests:
        row = np.zeros((1, len(COUNTS)), dtype=np.int32)
        count = np.array([len(keys)], dtype=np.int32)
        time_ns = np.array([round(arrival * SECOND_NS)])
        replay.run(np.array(keys, dtype=np.uint64), np.array([0, len(keys)]), count, row, time_ns=time_ns)
        tier.verify()
        told.append((int(row[0, COUNTS.index("resident_blocks")]), sorted(tier.residents())))
    return told


def model(capacity: int, seconds: float, sliding: bool, requests: list[tuple[float, list[int]]]) -> list[int]:
    """Blocks found resident, request by request, under LRU with expiry at the very moment."""
    stored: dict[int, float] = {}  # in order of last use
    found = []
    for at, keys in requests:
        for key in [key for key, since in stored.items() if at - since > seconds]:
            del stored[key]
        hits = 0
        for key in keys:
            since = stored.pop(key, None)
            hits += since is not None
            if since is None and len(stored) == capacity:
                del stored[next(iter(stored))]
            stored[key] = at if since is None or sliding else since
        found.append(hits)
    return found


@settings(deadline=None, max_examples=150)
@given(
    gaps=st.lists(st.tuples(st.integers(0, 6), st.lists(st.integers(0, 12), unique=True, max_size=6)), max_size=40),
    capacity=st.integers(1, 12),
    seconds=st.integers(0, 12),
    mode=st.sampled_from(["fixed", "sliding"]),
)
def test_hits_are_those_of_the_naive_model(gaps, capacity, seconds, mode):
    arrivals = np.cumsum([gap for gap, _ in gaps]).tolist()
    requests = [(at, keys) for at, (_, keys) in zip(arrivals, gaps, strict=True)]
    told = serve(make("ttl", capacity, seconds=seconds, mode=mode), requests)
    assert [hits for hits, _ in told] == model(capacity, seconds, mode == "sliding", requests)


@pytest.mark.parametrize(("mode", "left"), [("fixed", [2, 3, 4]), ("sliding", [1, 2, 3, 4])])
def test_a_use_renews_a_block_in_sliding_mode_only(mode, left):
    policy = make("ttl", 8, seconds=10, mode=mode)
    assert serve(policy, [(0, [1]), (2, [2]), (9, [1]), (9, [3]), (12, [4])])[-1] == (0, left)


@pytest.mark.parametrize("mode", ["fixed", "sliding"])
def test_a_block_lives_to_the_last_nanosecond(mode):
    policy = make("ttl", 8, seconds=10, mode=mode)
    assert serve(policy, [(0, [1]), (10, [2])])[-1] == (0, [1, 2])
    policy = make("ttl", 8, seconds=10, mode=mode)
    assert serve(policy, [(0, [1]), (10 + 1e-9, [2])])[-1] == (0, [2])


def test_expired_blocks_go_before_those_used_longer_ago():
    # 1 was used last and is expired; 2 was used before and is not.
    policy = make("ttl", 2, seconds=10)
    assert serve(policy, [(0, [1]), (8, [2]), (9, [1]), (11, [3])])[-1] == (0, [2, 3])


def test_without_expired_blocks_it_is_lru():
    policy = make("ttl", 2, seconds=1000)
    assert serve(policy, [(0, [1]), (1, [2]), (2, [1]), (3, [3])])[-1] == (0, [1, 3])


@pytest.mark.parametrize("order", ["tail-first", "head-first", "access"])
def test_blocks_of_the_request_at_hand_are_not_dropped_by_others_of_it(order):
    policy = make("ttl", 8, seconds=10, mode="sliding")
    assert serve(policy, [(0, [1, 2, 3]), (5, [1, 2, 3, 4]), (14, [5])], order)[-1] == (0, [1, 2, 3, 4, 5])
