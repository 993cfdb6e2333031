"""What a tier refuses, and its edges: pins, truncation, no bound (semantics §5)."""

from __future__ import annotations

import numpy as np
import pytest

from kvbench import ConfigError
from kvbench.cache import ORDERS, Tier
from kvbench.eviction import PolicyContext
from kvbench.eviction.lru import Lru
from kvbench.replays.order import COUNTS, OrderReplay

orders = pytest.mark.parametrize("order", ORDERS)


def array(keys):
    return np.array(keys, dtype=np.uint64)


def lru(capacity, order="tail-first"):
    return Tier(Lru(PolicyContext(capacity)), order=order)


@pytest.mark.parametrize("order", ["tail-first", "head-first"])
def test_a_request_larger_than_the_tier_keeps_its_leading_blocks(order):
    """Semantics §5.4: also over blocks of its own that lie further back."""
    tier = lru(3, order)
    tier.serve(array([5, 6]))
    assert tier.serve(array([1, 2, 3, 4, 5, 6])) == 0
    assert sorted(tier.residents()) == [1, 2, 3]
    assert tier.last == {"resident": 2, "stored": 3, "evicted": 2, "truncated": 3}


@orders
def test_a_tier_full_of_pinned_blocks_serves_what_it_has_and_truncates_the_rest(order):
    tier = lru(3, order)
    tier.serve(array([1, 2, 3]))
    tier.pin(array([1, 2, 3]))
    assert tier.serve(array([1, 2, 3, 4])) == 3
    assert tier.serve(array([7, 8])) == 0
    assert tier.last == {"resident": 0, "stored": 0, "evicted": 0, "truncated": 2}
    assert sorted(tier.residents()) == [1, 2, 3]


@orders
def test_pins_on_blocks_of_its_own_take_no_room_from_a_request(order):
    tier = lru(4, order)
    tier.serve(array([9]))
    tier.serve(array([1, 2, 3]))
    tier.pin(array([1, 2, 3]))
    assert tier.serve(array([1, 2, 3, 4])) == 3
    assert sorted(tier.residents()) == [1, 2, 3, 4]


@pytest.mark.parametrize("keys", [[1, 1], [1, 2], [1, 99]], ids=["twice", "not pinned", "absent"])
def test_unpinning_takes_all_pins_off_or_none(keys):
    tier = lru(4)
    tier.serve(array([1, 2]))
    tier.pin(array([1]))
    with pytest.raises(ValueError, match=rf"key {keys[1]} is not pinned in tier gpu"):
        tier.unpin(array(keys))
    assert tier.pinned == 1
    tier.unpin(array([1]))
    assert tier.pinned == 0
    tier.verify()


@orders
def test_a_tier_without_bound_never_evicts_and_fills_what_was_removed(order):
    tier = Tier(order=order)
    everything = array(range(50_000))
    for part in np.split(everything, 50):
        tier.serve(part)
    assert (tier.capacity, tier.used) == (None, 50_000)
    assert tier.remove(everything[10:9_000].copy()) == 8_990
    assert tier.serve(array(range(60_000))) == 10
    assert tier.last["evicted"] == 0
    assert tier.used == 60_000
    tier.verify()


def test_a_tier_of_no_block_and_an_unknown_order_are_refused():
    with pytest.raises(ConfigError, match="a tier holds 1 to"):
        lru(0)
    with pytest.raises(ConfigError, match="order 'sideways' is not one of tail-first, head-first, access"):
        lru(1, "sideways")


@pytest.mark.parametrize(
    ("offsets", "cacheable", "rows", "message"),
    [
        ([0, 2], [3], 1, "request 0 of the batch has 2 blocks, not 3"),
        ([0, 2], [-1], 1, "request 0 of the batch has 2 blocks, not -1"),
        ([0, 9], [1], 1, "offsets point outside the keys"),
        ([-1, 2], [1], 1, "offsets point outside the keys"),
        ([0, 2, 1], [1, 0], 2, "request 1 of the batch has -1 blocks"),
        ([0], [1], 1, "do not belong together"),
        ([0, 2], [1], 2, "do not belong together"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused(offsets, cacheable, rows, message):
    replay = OrderReplay([lru(4)])
    with pytest.raises(ValueError, match=message):
        replay.run(
            array([1, 2]),
            np.array(offsets, dtype=np.int64),
            np.array(cacheable, dtype=np.int32),
            np.zeros((rows, len(COUNTS)), dtype=np.int32),
        )
