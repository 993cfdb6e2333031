"""A policy's snapshot is its whole state: restored, it goes on as if nothing had happened."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from policies import make

from kvbench.cache import ORDERS, EventLog, Tier
from kvbench.cache.events import EVENT_FIELDS
from kvbench.errors import PolicyError
from kvbench.plugins import load_registry
from kvbench.replays.order import COUNTS, FACTS, OrderReplay
from kvbench.specs import EvictionPolicySpec

POLICIES = [
    spec.name
    for spec in load_registry(autoload=False).specs(EvictionPolicySpec)
    if not spec.looks_ahead and spec.name != "keep"  # which evicts nothing
]
CAPACITY = 60
SECOND_NS = 1_000_000_000
NEVER = 2**31 - 1


class History(NamedTuple):
    """Requests with all that a policy may ask about them."""

    keys: np.ndarray
    offsets: np.ndarray
    time_ns: np.ndarray
    facts: np.ndarray
    next_use: np.ndarray

    def part(self, first: int, last: int) -> History:
        start, stop = self.offsets[first], self.offsets[last]
        return History(
            self.keys[start:stop],
            self.offsets[first : last + 1] - start,
            self.time_ns[first:last],
            self.facts[first:last],
            self.next_use[start:stop],
        )


def history(requests: int, seed: int) -> History:
    """Prefixes of twelve chains that grow, shrink and share their first blocks."""
    random = np.random.default_rng(seed)
    chains = [np.r_[np.arange(4), 100 * chain + np.arange(4, 20)] for chain in range(12)]
    popular = random.zipf(1.3, requests) % len(chains)
    asked = [chains[chain][: random.integers(1, 20)] for chain in popular]
    keys = np.concatenate(asked).astype(np.uint64)
    offsets = np.cumsum([0, *map(len, asked)])
    return History(
        keys,
        offsets,
        np.cumsum(random.integers(0, 40 * SECOND_NS, requests)),
        random.integers(0, 6, (requests, len(FACTS)), dtype=np.int32),
        next_uses(keys, offsets),
    )


def next_uses(keys: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    uses = np.full(len(keys), NEVER, dtype=np.int32)
    seen: dict[int, int] = {}
    for request in reversed(range(len(offsets) - 1)):
        for at in range(offsets[request], offsets[request + 1]):
            uses[at] = seen.get(int(keys[at]), NEVER)
            seen[int(keys[at])] = request
    return uses


class Run:
    """A tier under a policy, and the log of what went in and out."""

    def __init__(self, name: str, order: str) -> None:
        self.policy: Any = make(name, CAPACITY, seed=11)
        self.log = EventLog()
        self.tier = Tier(self.policy, order=order, log=self.log)
        self.replay = OrderReplay([self.tier], log=self.log, keep_events=True)

    def serve(self, past: History) -> list[tuple[int, int]]:
        """What was stored and what went, in order."""
        before = len(self.events())
        rows = np.zeros((len(past.time_ns), len(COUNTS)), dtype=np.int32)
        self.replay.run(
            past.keys,
            past.offsets,
            np.diff(past.offsets).astype(np.int32),
            rows,
            time_ns=past.time_ns,
            facts=past.facts,
            next_use=past.next_use,
        )
        return self.events()[before:]

    def events(self) -> list[tuple[int, int]]:
        events = np.frombuffer(self.log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
        return list(zip(events["kind"].tolist(), events["key"].tolist(), strict=True))


@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("name", POLICIES)
def test_a_restored_policy_goes_on_as_the_one_that_was_saved(name: str, order: str) -> None:
    past = history(400, seed=5)
    saved, restored = Run(name, order), Run(name, order)
    blank = restored.policy.snapshot()
    saved.serve(past.part(0, 200))
    snapshot = saved.policy.snapshot()
    went_on = saved.serve(past.part(200, 400))
    assert any(kind == 1 for kind, _ in went_on), "the history evicts nothing"

    restored.serve(past.part(0, 200))
    restored.policy.restore(blank)
    assert restored.policy.snapshot() == blank
    restored.policy.restore(snapshot)
    assert restored.serve(past.part(200, 400)) == went_on


@pytest.mark.parametrize("name", POLICIES)
def test_a_used_policy_that_gets_a_new_ones_state_does_as_a_new_one(name: str) -> None:
    """So nothing that changes is kept outside of the snapshot."""
    past = history(400, seed=6)
    new, used = Run(name, "tail-first"), Run(name, "tail-first")
    blank = used.policy.snapshot()
    used.serve(past.part(200, 400))
    used.tier.remove(np.array(used.tier.residents(), dtype=np.uint64))
    used.policy.restore(blank)
    # Times of one history never go back; the requests count on where they were.
    assert used.serve(past.part(0, 200)) == new.serve(past.part(0, 200))


def test_the_snapshot_of_another_capacity_or_policy_is_refused() -> None:
    small = make("lru", 10).snapshot()
    for policy in (make("lru", 11), make("clock", 10)):
        with pytest.raises(PolicyError, match="the snapshot is that of another policy or capacity"):
            policy.restore(small)
