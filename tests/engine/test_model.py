"""The engine against a model of prefixes in ordered dictionaries, under random calls."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvbench import CacheEngine

CHUNK = 2
PROMPTS = st.lists(st.integers(0, 1), min_size=0, max_size=6).map(lambda chunks: [t for c in chunks for t in (c, 7)])
"""Prompts of up to six chunks of two kinds: many share prefixes."""

Prefix = tuple[int, ...]


@dataclass
class TierModel:
    """Prefixes, least recently used first, with their pins."""

    capacity: int
    pins: OrderedDict[Prefix, int] = field(default_factory=OrderedDict)
    unhealthy: bool = False
    get_fails: bool = False

    def has(self, prefix: Prefix) -> bool:
        return not self.unhealthy and prefix in self.pins

    def bring(self, chain: list[Prefix], first: int, stop: int, wanted: set[Prefix]) -> set[Prefix]:
        """Store the ``wanted`` ones that fit, the leading ones first, at the expense of blocks that are neither
        pinned nor of this chain, and make all of the chain from ``first`` to ``stop`` the most recent, its head
        last. Returns what was stored."""
        if self.unhealthy:
            return set()
        fits = self.leading(chain, wanted)
        new = {prefix for prefix in chain[:fits] if prefix in wanted}
        spared = set(chain[:fits])
        while len(self.pins) + len(new) > self.capacity:
            victim = next(prefix for prefix, pins in self.pins.items() if not pins and prefix not in spared)
            del self.pins[victim]
        for prefix in reversed(chain[first:stop]):
            if prefix in new:
                self.pins[prefix] = 0
            elif prefix in self.pins:
                self.pins.move_to_end(prefix)
        return new

    def leading(self, chain: list[Prefix], wanted: set[Prefix]) -> int:
        room = self.capacity - sum(pins > 0 for pins in self.pins.values())
        if len(wanted) <= self.capacity - len(self.pins) or len(chain) <= room:
            return len(chain)
        for fits, prefix in enumerate(chain):
            if self.pins.get(prefix, 0) or (prefix not in self.pins and prefix not in wanted):
                continue
            if room == 0:
                return fits
            room -= 1
        return len(chain)


class EngineMachine(RuleBasedStateMachine):
    """Two inclusive tiers: through-writes, promotion by copy, LRU."""

    @initialize(top=st.integers(1, 6), below=st.integers(1, 12))
    def start(self, top: int, below: int) -> None:
        self.now = 0
        self.engine = CacheEngine(
            tiers=[{"name": "cpu", "capacity": top}, {"name": "disk", "capacity": below}],
            chunk_tokens=CHUNK,
            clock=lambda: self.now,
            pin_timeout_s=10e-9,
        )
        self.tiers = [TierModel(top), TierModel(below)]
        self.leases: dict[int, tuple[int, list[tuple[TierModel, Prefix]]]] = {}
        self.names = 0

    # -- the model's three calls

    def chain(self, prompt: list[int]) -> list[Prefix]:
        return [tuple(prompt[: at + CHUNK]) for at in range(0, len(prompt) - len(prompt) % CHUNK, CHUNK)]

    def credit(self, chain: list[Prefix], first: int = 0) -> list[TierModel | None]:
        """The tier that delivers each block of the hit, None for those before ``first``."""
        found: list[TierModel | None] = [None] * min(first, len(chain))
        for prefix in chain[first:]:
            holder = next((tier for tier in self.tiers if tier.has(prefix)), None)
            if holder is None:
                break
            found.append(holder)
        return found

    def fetched(self, chain: list[Prefix], first: int) -> list[TierModel | None]:
        found = self.credit(chain, first)
        for at, tier in enumerate(found):
            if tier is not None and tier.get_fails:
                if not tier.pins[chain[at]]:
                    del tier.pins[chain[at]]
                found = found[:at]
                break
        for level, tier in enumerate(self.tiers):
            below = {
                prefix
                for prefix, holder in zip(chain, found, strict=False)
                if holder in self.tiers[level + 1 :] and prefix not in tier.pins
            }
            tier.bring(chain, first, len(found), below)
        return found

    def expire(self) -> None:
        for name in [name for name, (deadline, _) in self.leases.items() if deadline <= self.now]:
            self.end(name)

    def end(self, name: int) -> None:
        for tier, prefix in self.leases.pop(name)[1]:
            tier.pins[prefix] -= 1

    # -- the rules

    @rule(prompt=PROMPTS, computed=st.integers(0, 3), extra=st.integers(0, 1))
    def store(self, prompt: list[int], computed: int, extra: int) -> None:
        self.expire()
        chain = self.chain(prompt)
        first = min(computed, len(chain))
        had = {prefix for tier in self.tiers for prefix in tier.pins if not tier.unhealthy}
        new: set[Prefix] = set()
        for tier in self.tiers:
            wanted = {prefix for prefix in chain[first:] if prefix not in tier.pins}
            new |= tier.bring(chain, first, len(chain), wanted)
        tokens = [*prompt, *[9] * extra]
        mask = [at >= first * CHUNK for at in range(len(tokens))]
        result = self.engine.store(tokens, mask=mask)
        assert result.requested_tokens == CHUNK * (len(chain) - first)
        assert CHUNK * len(new - had) <= result.stored_tokens == CHUNK * len(new)

    @rule(prompt=PROMPTS, computed=st.integers(0, 3))
    def retrieve(self, prompt: list[int], computed: int) -> None:
        self.expire()
        chain = self.chain(prompt)
        first = min(computed, len(chain))
        found = self.fetched(chain, first)
        mask, by_tier = self.engine.retrieve(prompt, num_computed_tokens=first * CHUNK)
        assert mask.tolist() == [first * CHUNK <= at < max(first, len(found)) * CHUNK for at in range(len(prompt))]
        assert list(by_tier.values()) == [CHUNK * sum(each is tier for each in found) for tier in self.tiers]

    @rule(prompt=PROMPTS, computed=st.integers(0, 12))
    def lookup(self, prompt: list[int], computed: int) -> None:
        self.expire()
        chain = self.chain(prompt)
        computed = min(computed, len(prompt))
        first = computed // CHUNK
        hit = len(self.credit(chain, first))
        assert self.engine.lookup(prompt, num_computed_tokens=computed) == (hit * CHUNK if hit > first else computed)

    @rule(prompt=PROMPTS)
    def lease(self, prompt: list[int]) -> None:
        self.expire()
        chain = self.chain(prompt)
        credit = self.credit(chain)
        self.names += 1
        assert self.engine.lookup(prompt, pin=True, lookup_id=self.names) == CHUNK * len(credit)
        held = [(tier, prefix) for tier, prefix in zip(credit, chain, strict=False) if tier is not None]
        for tier, prefix in held:
            tier.pins[prefix] += 1
        self.leases[self.names] = (self.now + 10, held)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def unpin(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.leases)))
        self.expire()
        assert self.engine.lookup_unpin(name) == (name in self.leases)
        if name in self.leases:
            self.end(name)

    @rule(prompt=PROMPTS)
    def remove(self, prompt: list[int]) -> None:
        self.expire()
        chain = self.chain(prompt)
        before = {prefix for prefix in chain if any(prefix in tier.pins for tier in self.tiers)}
        for tier in self.tiers:
            for prefix in chain:
                if tier.pins.get(prefix) == 0:
                    del tier.pins[prefix]
        after = {prefix for prefix in chain if any(prefix in tier.pins for tier in self.tiers)}
        assert self.engine.remove(prompt) == CHUNK * len(before - after)

    @rule(tier=st.sampled_from(["cpu", "disk"]), unhealthy=st.booleans(), get_fails=st.booleans())
    def fail(self, tier: str, unhealthy: bool, get_fails: bool) -> None:
        model = self.tiers[["cpu", "disk"].index(tier)]
        model.unhealthy, model.get_fails = unhealthy, get_fails
        self.engine.inject(tier, unhealthy=unhealthy, get_fails=float(get_fails))

    @rule(ns=st.integers(1, 8))
    def wait(self, ns: int) -> None:
        self.now += ns

    @rule(prompt=PROMPTS)
    def locate(self, prompt: list[int]) -> None:
        names = ["cpu", "disk"]
        held = [
            tuple(name for name, tier in zip(names, self.tiers, strict=True) if prefix in tier.pins)
            for prefix in self.chain(prompt)
        ]
        assert self.engine.locations(prompt) == held

    @invariant()
    def the_counts_agree(self) -> None:
        if not hasattr(self, "engine"):
            return
        assert list(self.engine.used_chunks.values()) == [len(tier.pins) for tier in self.tiers]
        assert self.engine.references == sum(pins for tier in self.tiers for pins in tier.pins.values())
        assert self.engine.references == self.engine.leased


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(stateful_step_count=40, deadline=None)
