"""The contract of eviction policies: what a tier relies on, whatever is evicted first."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache import ORDERS, Tier
from kvbench.eviction import EvictionPolicy, PolicyContext
from kvbench.specs import EvictionPolicySpec, Spec
from kvbench.testing.parts import CONTRACT, PartContract
from kvbench.testing.stories import Player, Story, play, stories

if TYPE_CHECKING:
    from kvbench.testing.strategies import Keys

SEED = 20_240_229


class EvictionPolicyContract(PartContract):
    """Inherit, and set ``spec_name``; or override ``make``."""

    kind: ClassVar[type[Spec]] = EvictionPolicySpec

    def make(self, context: PolicyContext) -> EvictionPolicy:
        """A fresh policy."""
        policy = self.build(context)
        assert isinstance(policy, EvictionPolicy), f"the factory made a {type(policy).__name__}"
        return policy

    def fresh(self, capacity: int, seed: int = SEED) -> EvictionPolicy:
        """A fresh policy for a tier of ``capacity`` blocks."""
        return self.make(PolicyContext(capacity, seed))

    def skip_if_it_keeps(self) -> None:
        """A policy that never evicts cannot be asked to."""
        if self.fresh(1).never_evicts:
            pytest.skip("it never evicts")

    @CONTRACT
    @given(story=stories())
    def test_gives_up_only_blocks_that_are_there_and_not_pinned(self, story: Story) -> None:
        """And enough of them: the tier refuses free, pinned and missing victims."""
        play(self.fresh(story.capacity), story)

    @CONTRACT
    @given(story=stories(), seed=st.integers(0, 2**64 - 1))
    def test_same_seed_gives_same_evictions(self, story: Story, seed: int) -> None:
        first = play(self.fresh(story.capacity, seed), story)
        assert play(self.fresh(story.capacity, seed), story) == first

    @CONTRACT
    @given(story=stories(), other=stories())
    def test_two_instances_share_nothing(self, story: Story, other: Story) -> None:
        """A policy does the same alone as beside another one that serves another tier."""
        alone = play(self.fresh(story.capacity), story)
        player = Player(self.fresh(story.capacity), story.order)
        neighbour = Player(self.fresh(other.capacity), other.order)
        for at in range(max(len(story.steps), len(other.steps))):
            if at < len(other.steps):
                neighbour.step(other.steps[at])
            if at < len(story.steps):
                player.step(story.steps[at])
        assert player.events() == alone

    @CONTRACT
    @given(story=stories(max_capacity=1))
    def test_works_in_a_tier_of_one_block(self, story: Story) -> None:
        play(self.fresh(1), story)

    @CONTRACT
    @given(capacity=st.integers(1, 40), data=st.data())
    def test_gives_up_all_that_is_not_pinned(self, capacity: int, data: st.DataObject) -> None:
        """A request that needs every block that is not pinned gets exactly those."""
        self.skip_if_it_keeps()
        tier = Tier(self.fresh(capacity))
        tier.serve(_keys(0, capacity))
        pinned = data.draw(st.sets(st.integers(0, capacity - 1)), label="pinned")
        for key in sorted(pinned):
            tier.pin(_keys(key, 1))
        tier.serve(_keys(1_000, capacity - len(pinned)))
        tier.verify()
        kept = {key for key in tier.residents() if key < 1_000}
        assert kept == pinned
        assert tier.used == capacity

    @pytest.mark.parametrize("order", sorted(ORDERS))
    def test_request_larger_than_the_tier(self, order: str) -> None:
        """The tier ends full, and goes on working, when a request does not fit."""
        tier = Tier(self.fresh(8), order=order)
        for first in (0, 1_000, 500, 0):
            tier.serve(_keys(first, 20))
            tier.verify()
            assert tier.used == 8

    @CONTRACT
    @given(capacity=st.integers(1, 40), data=st.data())
    def test_forgets_what_is_removed(self, capacity: int, data: st.DataObject) -> None:
        """Removed blocks are not given up later, and blocks stored in their slots are, once."""
        self.skip_if_it_keeps()
        tier = Tier(self.fresh(capacity))
        tier.serve(_keys(0, capacity))
        removed = data.draw(st.sets(st.integers(0, capacity - 1)), label="removed")
        assert tier.remove(np.array(sorted(removed), dtype=np.uint64)) == len(removed)
        for first in (1_000, 2_000):
            asked = data.draw(st.integers(0, capacity), label="blocks asked")
            tier.serve(_keys(first, asked))
            tier.verify()
        tier.serve(_keys(3_000, capacity))
        tier.verify()
        assert sorted(tier.residents()) == list(range(3_000, 3_000 + capacity))

    def test_works_again_after_everything_was_removed(self) -> None:
        tier = Tier(self.fresh(8))
        for first in (0, 100, 200):
            tier.serve(_keys(first, 12))
            tier.remove(_keys(first, 12))
            assert tier.used == 0
        for first in (300, 400):
            tier.serve(_keys(first, 12))
            tier.verify()
            assert tier.used == 8


def _keys(first: int, count: int) -> Keys:
    return np.arange(first, first + count, dtype=np.uint64)
