"""The compiled tier does, event for event, what a model in lists and dicts does."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kvbench.cache import ORDERS, EventLog, Tier
from kvbench.cache.events import EVENT_FIELDS, EVENT_REASONS
from kvbench.eviction import PolicyContext
from kvbench.eviction.fifo import Fifo
from kvbench.eviction.lru import Lru
from tests.cache.naive import NaiveTier

POLICIES = {"lru": Lru, "fifo": Fifo}
FRESH = 10_000

subsets = st.lists(st.integers(0, 40), max_size=24, unique=True)
# One number names a chain of a trie: its ancestors are what is left when it is halved.
chains = st.integers(1, 2**7).map(lambda leaf: [leaf >> up for up in reversed(range(leaf.bit_length()))])
requests = st.one_of(subsets, chains)


def array(keys):
    return np.array(keys, dtype=np.uint64)


def read(log):
    events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
    return [(EVENT_REASONS[e["reason"]], int(e["key"]), int(e["parent"]) if e["has_parent"] else None) for e in events]


class Pair:
    """A compiled tier and its model, fed alike."""

    def __init__(self, capacity, order, policy, dense):
        self.log = EventLog()
        # Sparse keys hit other paths of the hash table than small numbers do.
        self.spread = 1 if dense else 0x9E3779B97F4A7C15
        self.tier = Tier(POLICIES[policy](PolicyContext(capacity)), order=order, dense=dense, log=self.log)
        self.model = NaiveTier(capacity, order, policy == "lru")
        self.folded: set[int] = set()
        self.told = 0

    def keys(self, names):
        return [name * self.spread % 2**64 for name in names]

    def serve(self, names):
        keys = self.keys(names)
        hit = self.tier.serve(array(keys))
        assert {"hit": hit, **self.tier.last} == self.model.serve(keys)

    def compare(self):
        self.tier.verify()
        events = read(self.log)
        assert events == self.model.events
        for reason, key, _ in events[self.told :]:
            assert (key in self.folded) == (reason != "computed")
            self.folded ^= {key}
        self.told = len(events)
        assert set(self.tier.residents()) == set(self.model.queue) == self.folded
        assert self.tier.used == len(self.model.queue)
        assert self.tier.pinned == len(self.model.pins)
        assert 0 <= self.tier.pinned <= self.tier.used <= self.tier.capacity

    def drain(self):
        """Push everything out with fresh blocks: the evictions spell out the policy's order."""
        for name in range(FRESH, FRESH + 2 * self.model.capacity):
            self.serve([name])
        self.compare()


@settings(max_examples=60)
@given(st.lists(requests, max_size=30), st.integers(1, 40))
@pytest.mark.parametrize("dense", [True, False], ids=["dense", "hash"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("order", ORDERS)
def test_counts_evictions_residents_and_recency_are_those_of_the_model(order, policy, dense, trace, capacity):
    """Semantics §5.1 and §5.4; capacities below a request's length included."""
    pair = Pair(capacity, order, policy, dense)
    for names in trace:
        pair.serve(names)
    pair.compare()
    pair.drain()


class PinnedTier(RuleBasedStateMachine):
    """Requests, pins and removals in any order (semantics §5.2), the invariants of §13 after each."""

    pinned = Bundle("pinned")

    @initialize(
        capacity=st.integers(1, 24),
        order=st.sampled_from(sorted(ORDERS)),
        policy=st.sampled_from(sorted(POLICIES)),
        dense=st.booleans(),
    )
    def make(self, capacity, order, policy, dense):
        self.pair = Pair(capacity, order, policy, dense)
        if dense:
            self.pair.serve([40, 128])  # a direct table is reserved as far as it has been asked

    @rule(names=requests)
    def serve(self, names):
        self.pair.serve(names)

    @rule(names=requests)
    def probing_says_the_hit_and_changes_nothing(self, names):
        keys = self.pair.keys(names)
        held = [key in self.pair.model.queue for key in keys]
        assert self.pair.tier.probe(array(keys)) == [*held, False].index(False)

    @rule(target=pinned, names=requests)
    def pin(self, names):
        keys = self.pair.keys(names)
        count = self.pair.tier.pin(array(keys))
        assert count == self.pair.model.pin(keys)
        return keys[:count] if count else multiple()

    @rule(keys=consumes(pinned))
    def unpin(self, keys):
        if Counter(keys) <= self.pair.model.pins:
            self.pair.tier.unpin(array(keys))
            self.pair.model.pins -= Counter(keys)

    @rule(names=requests)
    def unpinning_what_has_no_pin_changes_nothing(self, names):
        keys = self.pair.keys(names)
        if Counter(keys) <= self.pair.model.pins:
            return
        with pytest.raises(ValueError, match="is not pinned in tier gpu"):
            self.pair.tier.unpin(array(keys))

    @rule(names=requests)
    def remove(self, names):
        keys = self.pair.keys(names)
        before = self.pair.tier.used
        removed = self.pair.tier.remove(array(keys))
        self.pair.model.remove(keys)
        assert before - removed == self.pair.tier.used

    @invariant()
    def the_account_holds(self):
        if hasattr(self, "pair"):
            self.pair.compare()

    def teardown(self):
        if hasattr(self, "pair"):
            for key in self.pair.model.pins.elements():
                self.pair.tier.unpin(array([key]))
            self.pair.model.pins.clear()
            self.pair.drain()


TestPinnedTier = PinnedTier.TestCase
TestPinnedTier.settings = settings(stateful_step_count=40)
