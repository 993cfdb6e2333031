"""The policy that knows the future, against published counts."""

from __future__ import annotations

import numpy as np
import pytest

from kvbench.cache import Tier
from kvbench.errors import PolicyError
from kvbench.replays.belady import NextUses
from tests.policies import cloud_physics, make, mooncake, replay, zipf

MISSES = {
    128: 93_495,
    256: 92_213,
    489: 90_263,
    512: 90_079,
    1_024: 86_881,
    2_048: 81_678,
    4_897: 71_620,
    8_192: 64_382,
    16_384: 55_459,
}
HITS = {"conversation": {1_000: 54_994, 10_000: 105_710}, "synthetic": {1_000: 33_713, 10_000: 75_315, 30_000: 77_953}}


def hits(ids: np.ndarray, offsets: np.ndarray, capacity: int) -> int:
    next_use = np.empty(len(ids), dtype=np.int32)
    NextUses().note(ids, offsets, np.diff(offsets).astype(np.int32), next_use)
    return replay(make("belady", capacity), ids, offsets, next_use=next_use)[0]["resident_blocks"]


def test_misses_on_the_sample_are_the_published_ones(shared):
    ids = cloud_physics(shared)
    offsets = np.arange(len(ids) + 1, dtype=np.int64)
    assert {capacity: len(ids) - hits(ids, offsets, capacity) for capacity in MISSES} == MISSES


@pytest.mark.parametrize("name", HITS)
def test_hits_on_mooncake_are_the_published_ones(shared, name):
    ids, offsets = mooncake(shared, name)
    assert {capacity: hits(ids, offsets, capacity) for capacity in HITS[name]} == HITS[name]


def test_victim_is_always_the_block_used_farthest_away():
    """Against a model that looks through the rest of the stream at each miss."""
    ids = zipf(400, 40, seed=3)
    offsets = np.arange(len(ids) + 1, dtype=np.int64)
    held: set[int] = set()
    expected = 0
    for at, block in enumerate(ids.tolist()):
        expected += block in held
        if block not in held and len(held) == 8:
            rest = ids[at + 1 :].tolist()
            held.remove(max(held, key=lambda each: rest.index(each) if each in rest else len(rest)))
        held.add(block)
    assert hits(ids, offsets, 8) == expected


def test_replay_that_does_not_know_the_future_is_refused():
    with pytest.raises(PolicyError, match="next use"):
        Tier(make("belady", 4)).serve(np.array([1], dtype=np.uint64))
