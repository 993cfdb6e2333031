"""A story: what happens to one tier, step by step. Contracts and fuzz tests play it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from hypothesis import strategies as st

from kvbench.cache import ORDERS, EventLog, Tier
from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS
from kvbench.testing.strategies import grow, shapes

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from kvbench.eviction import EvictionPolicy
    from kvbench.testing.strategies import Keys, Shape

Action = Literal["serve", "pin", "unpin", "remove"]
ACTIONS: tuple[Action, ...] = ("serve", "serve", "serve", "pin", "unpin", "remove")
"""What a step may be; serving is most of what a tier does."""

MAX_BLOCKS = 8
"""Longest request of a story."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: ``serve`` a request, ``pin`` its resident prefix or ``remove`` its blocks.
    ``unpin`` takes back the oldest pin, whatever the keys."""

    action: Action
    keys: Keys

    def __repr__(self) -> str:
        return self.action if self.action == "unpin" else f"{self.action} {self.keys.tolist()}"


@dataclass(frozen=True, slots=True)
class Story:
    """Steps for a tier of ``capacity`` blocks that sweeps in ``order``."""

    capacity: int
    order: str
    steps: tuple[Step, ...]


def stories(*, max_capacity: int = 12, max_steps: int = 20) -> SearchStrategy[Story]:
    """Stories whose requests share prefixes."""
    steps = st.lists(st.tuples(st.sampled_from(ACTIONS), shapes(MAX_BLOCKS)), min_size=1, max_size=max_steps)
    return st.builds(Story, st.integers(1, max_capacity), st.sampled_from(sorted(ORDERS)), steps.map(_steps))


def _steps(drawn: list[tuple[Action, Shape]]) -> tuple[Step, ...]:
    asked = grow([shape for _, shape in drawn], MAX_BLOCKS)
    return tuple(Step(action, keys) for (action, _), keys in zip(drawn, asked, strict=True))


class Player:
    """A tier under a story, advanced step by step; every step checks the tier's account.

    Raises PolicyError where the policy gives up a free or pinned slot or not enough of them, and
    AssertionError where the account does not hold.
    """

    def __init__(self, policy: EvictionPolicy, order: str) -> None:
        self.log = EventLog()
        self.tier = Tier(policy, order=order, log=self.log)
        self.pinned: list[Keys] = []

    def step(self, step: Step) -> None:
        """Take one step."""
        if step.action == "serve":
            self.tier.serve(step.keys)
        elif step.action == "pin":
            self.pinned.append(step.keys[: self.tier.pin(step.keys)])
        elif step.action == "remove":
            self.tier.remove(step.keys)
        elif self.pinned:
            self.tier.unpin(self.pinned.pop(0))
        self.tier.verify()
        for keys in self.pinned:
            assert self.tier.probe(keys) == len(keys), "a pinned block was evicted"

    def events(self) -> list[tuple[str, int]]:
        """What was stored and what went, in order: ``("INSERT", key)`` and ``("DELETE", key)``."""
        records = np.frombuffer(self.log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
        return [(EVENT_KINDS[kind], key) for kind, key in zip(records["kind"], records["key"].tolist(), strict=True)]


def play(policy: EvictionPolicy, story: Story) -> list[tuple[str, int]]:
    """Play a whole story; returns what was stored and what went, in order. Raises as :class:`Player` does."""
    player = Player(policy, story.order)
    for step in story.steps:
        player.step(step)
    return player.events()
