"""Semantics §4 and §6 for a stack of tiers, in lists and dicts: what the compiled stack must agree with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Settings:
    """One tier, as :class:`kvbench.tierconfig.TierConfig` says; capacities and watermarks in chunks."""

    capacity: int | None = None
    policy: str = "lru"
    multiple: int = 1
    write: str = "through"
    promotion: str = "copy"
    touch_on: str = "request"
    order: str = "tail-first"
    spares: bool = True
    whole: bool = False
    high: int = 0
    low: int = 0
    ratio: float = 0.0

    def __repr__(self) -> str:
        plain = vars(Settings())
        return (
            f"Settings({', '.join(f'{name}={value!r}' for name, value in vars(self).items() if value != plain[name])})"
        )

    @property
    def makes_room(self) -> bool:
        """Whether it evicts at allocation."""
        return self.policy != "keep" and not self.high


class NaiveTier:
    """``queue`` has the resident keys, next victim first; ``below`` takes what is evicted."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.queue: list[int] = []
        self.below: NaiveTier | None = None
        self.spared: set[int] = set()

    @property
    def free(self) -> float:
        return float("inf") if self.settings.capacity is None else self.settings.capacity - len(self.queue)

    def room(self) -> float:
        """How much one request may have here, at the expense of all others."""
        return self.free + len(self.queue) if self.settings.makes_room else self.free

    def chunks(self, keys: list[int]) -> list[int]:
        """A chunk's key is that of its last block (§3.4)."""
        return keys[self.settings.multiple - 1 :: self.settings.multiple]

    def holds(self, keys: list[int]) -> list[bool]:
        """For each block: is the chunk that contains it here?"""
        held = [key in self.queue for key in self.chunks(keys)]
        return [
            at // self.settings.multiple < len(held) and held[at // self.settings.multiple] for at in range(len(keys))
        ]

    def use(self, key: int) -> None:
        if self.settings.policy == "lru":
            self.queue.remove(key)
            self.queue.append(key)

    def evict(self, count: float, spared: Iterable[int] = ()) -> None:
        """Victims move down (``write = back`` below) or are gone."""
        victims = [key for key in self.queue if key not in self.spared.union(spared)]
        for victim in victims[: int(max(min(count, len(victims)), 0))]:
            if self.below is not None:
                self.below.receive(victim)
            self.queue.remove(victim)

    def receive(self, key: int) -> None:
        if key in self.queue:
            return
        if self.free == 0 and self.settings.makes_room:
            self.evict(1)
        if self.free > 0:
            self.queue.append(key)

    def keep_below_watermark(self) -> None:
        here = len(self.queue)
        if self.settings.high and here >= self.settings.high:
            self.evict(max(1, int(here * self.settings.ratio)) if self.settings.ratio else here - self.settings.low)


class NaiveStack:
    """One worker's tiers, fastest first; some may be other workers' too."""

    def __init__(self, tiers: list[NaiveTier], walk: str = "any", spill: bool = False) -> None:
        self.tiers, self.walk, self.spill = tiers, walk, spill
        for above, below in pairwise(tiers):
            if below.settings.write == "back":
                above.below = below

    def serve(self, keys: list[int]) -> list[int]:
        """Serve one request; for each block of the prefix hit, the tier that delivered it."""
        held = [tier.holds(keys) for tier in self.tiers]
        self.had = [set(tier.queue) for tier in self.tiers]
        self.credit = self.lookup(len(keys), held)
        for level in range(len(self.tiers) - 1):
            if self.tiers[level].settings.promotion == "temporary":
                self.stage(level, keys)
        for level, tier in enumerate(self.tiers):
            if tier.settings.touch_on == "lookup":
                for at in reversed(range(len(tier.chunks(keys)))):
                    if self.delivered(level, at):
                        tier.use(tier.chunks(keys)[at])
        anywhere = [any(column) for column in zip(*held, strict=True)]
        plans = [self.plan(level, keys) for level in range(len(self.tiers))]
        if self.spill:
            self.plan_spill(plans, anywhere)
        for tier in self.tiers[1:]:
            if tier.settings.spares:
                tier.spared = set(tier.chunks(keys)) & set(tier.queue)
        for level, tier in enumerate(self.tiers):
            tier.spared = set()
            self.commit(level, keys, *plans[level])
        return self.credit

    def lookup(self, blocks: int, held: list[list[bool]]) -> list[int]:
        credit: list[int] = []
        if self.walk == "once":
            for level in range(len(self.tiers)):
                while len(credit) < blocks and held[level][len(credit)]:
                    credit.append(level)
            return credit
        for at in range(blocks):
            levels = [level for level in range(len(self.tiers)) if held[level][at]]
            if not levels:
                break
            credit.append(levels[0])
        return credit

    def staged(self, level: int) -> list[int]:
        """Chunks of a tier that pass through it on their way up."""
        multiple = self.tiers[level].settings.multiple
        return sorted({at // multiple for at, source in enumerate(self.credit) if source > level})

    def stage(self, level: int, keys: list[int]) -> None:
        """The prefix ends where there is no room for what passes through; the request's own blocks stay."""
        tier = self.tiers[level]
        staged = self.staged(level)
        own = len(set(tier.chunks(keys)) & set(tier.queue)) if tier.settings.makes_room else 0
        room = max(tier.room() - own, 0)
        if len(staged) > room:
            chunk = staged[int(room)]
            first = chunk * tier.settings.multiple
            self.credit = self.credit[: next(at for at in range(first, len(self.credit)) if self.credit[at] > level)]

    def source(self, level: int, chunk: int) -> int | None:
        """Which tier delivered a chunk: the one that its last block is credited to; None: it is computed."""
        last = (chunk + 1) * self.tiers[level].settings.multiple - 1
        return self.credit[last] if last < len(self.credit) else None

    def delivered(self, level: int, chunk: int) -> bool:
        """Whether a tier delivered any block of a chunk of its own."""
        multiple = self.tiers[level].settings.multiple
        return level in self.credit[chunk * multiple : (chunk + 1) * multiple]

    def plan(self, level: int, keys: list[int]) -> tuple[set[int], set[int]]:
        """Positions of the chunks that a tier is to store, and of those it counts as used."""
        tier = self.tiers[level]
        wanted, touched = set(), set()
        for at, key in enumerate(tier.chunks(keys)):
            if key in tier.queue:
                if tier.settings.touch_on == "request" or (
                    tier.settings.touch_on == "hit" and self.delivered(level, at)
                ):
                    touched.add(at)
            elif self.is_offered(level, at):
                wanted.add(at)
        return wanted, touched

    def is_offered(self, level: int, chunk: int) -> bool:
        """Whether a tier stores a chunk, if it has not got it: computed, or delivered by a tier below."""
        source, settings = self.source(level, chunk), self.tiers[level].settings
        if source is None:
            return settings.write == "through"
        return source > level and settings.promotion in ("copy", "move")

    def plan_spill(self, plans: list[tuple[set[int], set[int]]], anywhere: list[bool]) -> None:
        """Computed chunks go into the first tier with room; one that has none for the next is left for good."""
        multiple, level, taken = self.tiers[0].settings.multiple, 0, 0
        for at in range(len(anywhere) // multiple):
            if self.source(0, at) is not None or anywhere[at * multiple]:
                continue
            while level < len(self.tiers):
                tier = self.tiers[level]
                if (level == len(self.tiers) - 1 and tier.settings.makes_room) or taken < tier.free:
                    plans[level][0].add(at)
                    taken += 1
                    break
                level, taken = level + 1, 0

    def commit(self, level: int, keys: list[int], planned: set[int], touched: set[int]) -> None:
        """Sources first, then room, then one sweep over the request (§5.1)."""
        tier = self.tiers[level]
        chunks = tier.chunks(keys)
        if tier.settings.promotion == "temporary" and level < len(self.tiers) - 1:
            tier.evict(len(self.staged(level)) - tier.free, set(chunks))
        wanted = {at for at in planned if chunks[at] not in tier.queue}
        if tier.settings.promotion == "move":  # what a faster tier has taken is no longer there
            wanted = {at for at in wanted if self.source(level, at) is None or self.is_below(level, at, chunks[at])}
        batch = bool(wanted) and not tier.settings.spares
        takes = self.takes(level, chunks, wanted, batch)
        spare = set() if batch else {chunks[at] for at in takes}
        wanted &= takes
        if tier.settings.promotion == "move":
            for at in wanted:
                source = self.source(level, at)
                if source is None:  # computed again: a copy below moves
                    source = next((s for s in range(level + 1, len(self.tiers)) if self.had[s] & {chunks[at]}), None)
                if source is not None and chunks[at] in self.tiers[source].queue:
                    self.tiers[source].queue.remove(chunks[at])
                    self.tiers[source].spared.discard(chunks[at])  # it stays there no longer
        if batch and tier.settings.makes_room:
            before = set(tier.queue)
            tier.evict(len(takes) - tier.free)
            gone = {at for at in takes if chunks[at] in before and chunks[at] not in tier.queue}
            wanted |= {at for at in gone if self.is_offered(level, at)}
        elif tier.settings.makes_room:
            tier.evict(len(wanted) - tier.free, spare)
        for at in range(len(chunks)) if tier.settings.order == "head-first" else reversed(range(len(chunks))):
            if at in wanted:
                tier.queue.append(chunks[at])
            elif at in touched and chunks[at] in tier.queue:
                tier.use(chunks[at])
        tier.keep_below_watermark()

    def is_below(self, level: int, at: int, key: int) -> bool:
        source = self.source(level, at)
        return source is not None and key in self.tiers[source].queue

    def takes(self, level: int, chunks: list[int], wanted: set[int], batch: bool) -> set[int]:
        """Which chunks may have room: all if the missing ones fit into what is free, else the leading ones
        of those that are to be stored or here; with ``batch`` (LMCache) every one that this tier did not
        deliver has to be given room, resident or not."""
        tier = self.tiers[level]
        if not batch and len(wanted) <= tier.free:
            return set(range(len(chunks)))
        takes = []
        for at, key in enumerate(chunks):
            counts = self.source(level, at) != level if batch else tier.settings.makes_room
            if at in wanted or (key in tier.queue and counts):
                takes.append(at)
        if len(takes) <= tier.room():
            return set(takes)
        return set() if tier.settings.whole else set(takes[: int(tier.room())])
