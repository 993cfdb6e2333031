"""The contract of eviction policies finds each kind of mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis.errors import FlakyFailure

from kvbench.errors import PolicyError
from kvbench.eviction import PolicyContext, PythonPolicy
from kvbench.testing import EvictionPolicyContract

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Oldest(PythonPolicy):
    """FIFO, right in every respect; the broken ones below change one thing."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.seed = context.seed
        self.queue: dict[int, None] = {}

    def insert(self, slots: Iterable[int]) -> None:
        self.queue.update(dict.fromkeys(slots))

    def remove(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self.queue.pop(slot, None)

    def evict(self, n: int) -> Sequence[int]:
        victims = [slot for slot in self.queue if self.refs[slot] < 2][:n]
        Oldest.remove(self, victims)
        return victims


class IgnoresPins(Oldest):
    def evict(self, n: int) -> Sequence[int]:
        victims = list(self.queue)[:n]
        self.remove(victims)
        return victims


class GivesUpTooFew(Oldest):
    def evict(self, n: int) -> Sequence[int]:
        return super().evict(max(1, n - 1))


class GivesUpTooMany(Oldest):
    def evict(self, n: int) -> Sequence[int]:
        return super().evict(n + 1)


class GivesUpOneTwice(Oldest):
    def evict(self, n: int) -> Sequence[int]:
        victims = list(super().evict(n))
        return [victims[0]] * n


class NeverRemoves(Oldest):
    def remove(self, slots: Iterable[int]) -> None:
        pass


class LosesWhatIsStoredAgain(Oldest):
    """Knows a slot's first block only."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.known: set[int] = set()

    def insert(self, slots: Iterable[int]) -> None:
        super().insert(slot for slot in slots if slot not in self.known)
        self.known.update(slots)


class CountsAcrossInstances(Oldest):
    """Alternates between oldest and newest, with a counter that all instances share."""

    calls: ClassVar[list[int]] = [0]

    def evict(self, n: int) -> Sequence[int]:
        self.calls[0] += 1
        order = list(self.queue) if self.calls[0] % 2 else list(self.queue)[::-1]
        victims = [slot for slot in order if self.refs[slot] < 2][:n]
        self.remove(victims)
        return victims


class FailsInATierOfOne(Oldest):
    def evict(self, n: int) -> Sequence[int]:
        return super().evict(n if self.capacity > 1 else 0)


CAUGHT_BY = [
    (IgnoresPins, "test_gives_up_only_blocks_that_are_there_and_not_pinned"),
    (IgnoresPins, "test_gives_up_all_that_is_not_pinned"),
    (GivesUpTooFew, "test_gives_up_all_that_is_not_pinned"),
    (GivesUpTooMany, "test_gives_up_only_blocks_that_are_there_and_not_pinned"),
    (GivesUpOneTwice, "test_gives_up_all_that_is_not_pinned"),
    (NeverRemoves, "test_forgets_what_is_removed"),
    (LosesWhatIsStoredAgain, "test_works_again_after_everything_was_removed"),
    (LosesWhatIsStoredAgain, "test_works_in_a_tier_of_one_block"),
    (CountsAcrossInstances, "test_same_seed_gives_same_evictions"),
    (CountsAcrossInstances, "test_two_instances_share_nothing"),
    (FailsInATierOfOne, "test_works_in_a_tier_of_one_block"),
]


class Contract(EvictionPolicyContract):
    """The contract over one class."""

    def __init__(self, policy: type[Oldest]) -> None:
        self.policy = policy

    def make(self, context: PolicyContext) -> Any:
        return self.policy(context)


@pytest.mark.parametrize(("policy", "test"), CAUGHT_BY, ids=lambda value: getattr(value, "__name__", value))
def test_broken_policy_fails(policy: type[Oldest], test: str) -> None:
    """A policy with one mistake fails the test that is there for it."""
    # A mistake that depends on what was run before may fail in one try and not in the next.
    with pytest.raises((AssertionError, PolicyError, FlakyFailure)):
        getattr(Contract(policy), test)()


@pytest.mark.parametrize("test", sorted({test for _, test in CAUGHT_BY}))
def test_right_policy_passes(test: str) -> None:
    """The tests that catch the mistakes pass without them."""
    getattr(Contract(Oldest), test)()


def test_policy_that_is_none_fails() -> None:
    """A factory that makes something else is told so."""

    class Wrong(EvictionPolicyContract):
        def build(self, *args: Any) -> Any:
            return object()

    with pytest.raises(AssertionError, match="made a object"):
        Wrong().fresh(4)
