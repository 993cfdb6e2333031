"""The Belady bound is what it says: nothing does better (semantics §13)."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvbench
from kvbench.plugins import load_registry
from kvbench.replays.belady import NEVER, BeladyBound, NextUses
from kvbench.specs import EvictionPolicySpec
from tests.policies import dense, mooncake

# Paths down a tree: a block's id names the way to it, so equal ids have equal prefixes.
paths = st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=4), min_size=1, max_size=7)


def requests_of(ways: list[list[int]]) -> list[tuple[int, ...]]:
    requests = []
    for way in ways:
        node, request = 0, []
        for turn in way:
            node = 3 * node + turn
            request.append(node)
        requests.append(tuple(request))
    return requests


def bound_hits(ids: np.ndarray, offsets: np.ndarray, capacity: int) -> list[int]:
    cacheable = np.diff(offsets).astype(np.int32)
    next_use = np.empty(len(ids), dtype=np.int32)
    NextUses().note(ids, offsets, cacheable, next_use)
    hits = np.zeros(len(cacheable), dtype=np.int32)
    BeladyBound(capacity, len(cacheable)).run(ids, offsets, cacheable, next_use, hits)
    return hits.tolist()


def flat(requests: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([block for request in requests for block in request], dtype=np.uint64)
    return dense(ids), np.cumsum([0, *map(len, requests)], dtype=np.int64)


@given(paths, st.integers(1, 4))
def test_bound_is_the_best_of_all_possible_caches(ways: list[list[int]], capacity: int) -> None:
    requests = requests_of(ways)

    @cache
    def best(at: int, held: frozenset[int]) -> int:
        if at == len(requests):
            return 0
        hit = next((i for i, block in enumerate(requests[at]) if block not in held), len(requests[at]))
        there = held | set(requests[at])
        kept = combinations(sorted(there), min(capacity, len(there)))
        return hit + max(best(at + 1, frozenset(keep)) for keep in kept)

    assert sum(bound_hits(*flat(requests), capacity)) == best(0, frozenset())


@given(paths)
def test_next_use_is_the_next_request_that_asks_for_the_block(ways: list[list[int]]) -> None:
    requests = requests_of(ways)
    ids, offsets = flat(requests)
    next_use = np.empty(len(ids), dtype=np.int32)
    NextUses().note(ids, offsets, np.diff(offsets).astype(np.int32), next_use)
    expected = [
        next((later for later in range(at + 1, len(requests)) if block in requests[later]), NEVER)
        for at, request in enumerate(requests)
        for block in request
    ]
    assert next_use.tolist() == expected


@pytest.mark.parametrize(
    ("name", "hits"),
    [("conversation", [55_019, 105_710, 105_710]), ("synthetic", [33_728, 75_316, 77_953])],
)
def test_mooncake_bounds_are_the_published_ones_with_bypass(shared, name: str, hits: list[int]) -> None:
    ids, offsets = mooncake(shared, name)
    assert [sum(bound_hits(ids, offsets, capacity)) for capacity in (1_000, 10_000, 50_000)] == hits


@pytest.mark.parametrize("order", ["tail-first", "head-first", "access"])
def test_no_policy_beats_the_bound(order: str) -> None:
    specs = load_registry(autoload=False).specs(EvictionPolicySpec)
    names = [
        spec.name for spec in specs if not set(spec.columns) - {"arrival_ns", "input_tokens", "turn", "session_id"}
    ]
    result = kvbench.replay_matrix("traces/chat.arrow", policy=names, capacity=[20, 300, 1_000], order=order)
    for cell in result.cells:
        for rate in ("token", "block", "full_block"):
            assert cell["rates"][rate] <= cell["belady_rates"][rate] <= cell["infinite_rates"][rate], cell


def test_bound_needs_no_dense_ids() -> None:
    """Any ids are numbered on the way; the bound is the same. It is not sought unasked, for its memory."""
    trace = kvbench.open_trace("traces/chat.arrow")
    table = pa.Table.from_batches(list(trace.batches()))
    loose = table.replace_schema_metadata(dataclasses.replace(trace.facts, dense=False).to_metadata())
    on = kvbench.replay(loose, capacity=300, belady="on").summary["belady_rates"]
    assert on == kvbench.replay("traces/chat.arrow", capacity=300).summary["belady_rates"]
    assert kvbench.replay(loose, capacity=300).summary["belady_rates"]["token"] is None
