"""The KVBM index by itself (semantics §8.1): what it credits to whom."""

from __future__ import annotations

import numpy as np
import pytest

from kvbench.routing import EventFeed, KvbmIndex
from tests.routing.events import Worker, event


def keys(*values):
    return np.array(values, dtype=np.uint64)


def cluster(workers, **settings):
    index = KvbmIndex(workers, **settings)
    feed = EventFeed(index)
    return index, [Worker(feed, number) for number in range(workers)]


TWO_TIERS = {"groups": [(1, 1), (1, 1)]}


def test_a_worker_keeps_a_key_until_its_last_copy_is_gone():
    """OP-44, BUG-14: insert in two tiers, delete one, it is still a candidate; delete both, it is gone."""
    index, (first, second) = cluster(2, **TWO_TIERS)
    first.tell("INSERT", 1)
    first.tell("COPY", 1, tier=1, source=0)
    second.tell("INSERT", 1, tier=1)
    assert index.holders_of(1) == [0, 1]
    first.tell("DELETE", 1)
    assert index.holders_of(1) == [0, 1]
    first.tell("DELETE", 1, tier=1)
    assert index.holders_of(1) == [1]
    second.tell("DELETE", 1, tier=1)
    assert index.holders_of(1) == []
    assert index.held == 0


def test_a_move_is_one_copy_at_another_place():
    """OP-40."""
    index, (first, _) = cluster(2, **TWO_TIERS)
    first.tell("INSERT", 1)
    first.tell("MOVE", 1, tier=1, source=0)
    assert index.tier_overlaps(keys(1)) == [[0, 0], [1, 0]]
    first.tell("DELETE", 1, tier=1)
    assert index.held == 0


def test_score_is_the_unbroken_prefix_of_each_worker():
    """OP-45, BUG-01: any holder of block 0 scores; the holder of block 3 alone has score 0; an empty prompt is fine."""
    index, workers = cluster(4)
    workers[0].store([1, 2, 3])
    workers[1].store([1, 2])
    workers[2].tell("INSERT", 3, parent=2)
    assert index.overlaps(keys(1, 2, 3, 4)) == [3, 2, 0, 0]
    assert index.holders_of(3) == [0, 2]
    assert index.overlaps(keys()) == [0, 0, 0, 0]


def test_a_prefix_in_a_slower_tier_is_told_apart():
    """G12: each block counts in the fastest tier that has it, so a weight can be put on it."""
    index, (first, second) = cluster(2, **TWO_TIERS)
    first.store([1, 2, 3], tier=1)
    second.store([1, 2])
    second.tell("INSERT", 3, parent=2, tier=1)
    second.tell("COPY", 1, tier=1, source=0)
    assert index.overlaps(keys(1, 2, 3)) == [3, 3]
    assert index.tier_overlaps(keys(1, 2, 3)) == [[0, 2], [3, 1]]


def test_clearing_a_store_forgets_all_of_it_and_nothing_else():
    """G09."""
    index, (first, second) = cluster(2, **TWO_TIERS)
    for worker in (first, second):
        worker.store([1, 2, 3])
    first.tell("INSERT", 1, tier=1)
    first.tell("CLEAR", 0)
    assert index.overlaps(keys(1, 2, 3)) == [1, 3]
    first.tell("CLEAR", 0, tier=1)
    assert index.overlaps(keys(1, 2, 3)) == [0, 3]
    assert index.held == 3


def test_a_shared_store_is_reached_by_all_of_its_workers():
    index, workers = cluster(4, groups=[(1, 1), (4, 1)])
    workers[0].store([1])
    workers[3].tell("INSERT", 1, tier=1, store=0)
    workers[3].tell("INSERT", 2, tier=1, store=0, parent=1)
    assert index.overlaps(keys(1, 2)) == [2, 2, 2, 2]
    workers[1].tell("DELETE", 1, tier=1, store=0)
    assert index.overlaps(keys(1, 2)) == [2, 0, 0, 0]


@pytest.mark.parametrize(("counts", "after"), [(True, [1, 0]), (False, [0, 0])])
def test_a_block_stored_twice_and_removed_once_is_there_for_who_counts(counts, after):
    """vLLM stores equal blocks of two requests twice (hashing-and-events.md 6): a set loses it too early."""
    index, (first, _) = cluster(2, counts_copies=counts)
    first.tell("INSERT", 1)
    first.tell("INSERT", 1)
    first.tell("DELETE", 1)
    assert index.overlaps(keys(1)) == after
    first.tell("DELETE", 1)
    assert index.held == 0
    assert index.unmatched == (0 if counts else 1)


def test_clearing_takes_all_copies():
    index, (first, _) = cluster(2, counts_copies=True)
    first.tell("INSERT", 1)
    first.tell("INSERT", 1)
    first.tell("CLEAR", 0)
    first.tell("INSERT", 1)
    first.tell("DELETE", 1)
    assert index.held == 0


def test_a_block_whose_parent_is_unknown_is_parked_until_it_comes():
    """G11: the router starts after the workers; replaying what it missed makes the index whole."""
    index, (first, second) = cluster(2)
    second.store([1, 2])
    feed = first.feed
    feed.receive(event("INSERT", 0, 3, 2, parent=2), 0)
    assert index.overlaps(keys(1, 2, 3)) == [0, 2]
    assert index.parked == 1
    assert (feed.gaps, feed.missing, feed.stale_sources) == (1, 2, [0])
    first.store([1, 2])
    assert index.overlaps(keys(1, 2, 3)) == [3, 2]
    assert (index.parked, feed.late, feed.missing) == (0, 2, 0)


def test_memory_of_keys_that_nobody_holds_is_used_again():
    index, (first, _) = cluster(2, counts_copies=True)
    for key in range(30_000):
        first.tell("INSERT", key)
        first.tell("DELETE", key)
    assert index.held == 0
    assert index.holders_of(29_999) == []


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (event("INSERT", 9, 1, 0), "worker 9"),
        (event("INSERT", 0, 1, 0, tier=1), "tier 1"),
        (event("INSERT", 0, 1, 0, store=2), "store 2"),
        (event("INSERT", 0, 1, 0)[:-1], "whole number"),
    ],
)
def test_an_event_of_a_place_that_is_not_there_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        EventFeed(KvbmIndex(2)).receive(bad)
