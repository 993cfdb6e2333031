"""The contract of admission filters: one answer for each block, the same ones for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache import AdmissionContext, AdmissionFilter, StackedTier, TierStack
from kvbench.eviction import PolicyContext
from kvbench.eviction.lru import Lru
from kvbench.specs import AdmissionSpec, Spec
from kvbench.testing.parts import CONTRACT, PartContract
from kvbench.testing.strategies import requests

if TYPE_CHECKING:
    from kvbench.testing.strategies import Keys

SEED = 20_240_229
CAPACITY = 8


class AdmissionFilterContract(PartContract):
    """Inherit, and set ``spec_name``; or override ``make``."""

    kind: ClassVar[type[Spec]] = AdmissionSpec

    def make(self, context: AdmissionContext) -> AdmissionFilter:
        """A fresh filter."""
        made = self.build(context)
        assert isinstance(made, AdmissionFilter), f"the factory made a {type(made).__name__}"
        return made

    def fresh(self, seed: int = SEED) -> AdmissionFilter:
        """A fresh filter of a tier of CAPACITY blocks."""
        return self.make(AdmissionContext(CAPACITY, seed))

    @CONTRACT
    @given(asked=requests())
    def test_what_it_refuses_is_not_stored_and_is_counted(self, asked: list[Keys]) -> None:
        door = Door(self.fresh())
        for keys in asked:
            before = set(door.tier.residents())
            counts = door.tier.counters()
            door.serve(keys)
            after = door.tier.counters()
            offered = {int(key) for key in keys} - before
            stored = after["computed_chunks"] - counts["computed_chunks"]
            refused = after["refused_admission_chunks"] - counts["refused_admission_chunks"]
            no_room = after["refused_room_chunks"] - counts["refused_room_chunks"]
            assert stored + refused + no_room == len(offered)

    @CONTRACT
    @given(asked=requests(), seed=st.integers(0, 2**64 - 1))
    def test_same_seed_gives_same_answers(self, asked: list[Keys], seed: int) -> None:
        assert Door(self.fresh(seed)).held(asked) == Door(self.fresh(seed)).held(asked)

    @CONTRACT
    @given(asked=requests(), other=requests())
    def test_two_instances_share_nothing(self, asked: list[Keys], other: list[Keys]) -> None:
        """A filter answers the same alone as beside another one that is asked for other blocks."""
        alone = Door(self.fresh()).held(asked)
        door, neighbour = Door(self.fresh()), Door(self.fresh())
        beside = []
        for at, keys in enumerate(asked):
            neighbour.held(other[at : at + 1])
            beside += door.held([keys])
        assert beside == alone


class Door:
    """A tier of CAPACITY blocks with a filter before it."""

    def __init__(self, admission: AdmissionFilter) -> None:
        self.tier = StackedTier(Lru(PolicyContext(CAPACITY)), admission=admission)
        self.stack = TierStack([[self.tier]])

    def serve(self, keys: Keys) -> None:
        self.stack.serve(keys)

    def held(self, asked: list[Keys]) -> list[list[int]]:
        """What is in the tier after each request."""
        found = []
        for keys in asked:
            self.serve(keys)
            found.append(sorted(self.tier.residents()))
        return found
