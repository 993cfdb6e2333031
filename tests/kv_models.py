"""Naive Python models of the policies of LLM KV caches: the rule and nothing else."""

from __future__ import annotations

from collections import Counter
from math import exp

import numpy as np

from kvbench.cache import EventLog, Tier
from kvbench.cache.events import EVENT_FIELDS
from kvbench.eviction import PythonPolicy
from kvbench.replays.order import COUNTS, OrderReplay
from kvbench.testing.strategies import BRANCHES


class Ranked(PythonPolicy):
    """Evicts the lowest rank, told by ``rank_of(model, slot)`` at each use."""

    def __init__(self, context, rank_of=lambda model, slot: model.clock):
        self.capacity_, self.rank_of = context.capacity, rank_of
        self.clock, self.rank, self.first, self.uses = 0, {}, {}, Counter()

    def touch(self, slots):
        for k, slot in enumerate(slots):
            self.clock += 1
            self.uses[slot] += 1
            self.position = self.depth + k * self.step
            self.rank[slot] = self.rank_of(self, slot)

    def insert(self, slots):
        for k, slot in enumerate(slots):
            self.first[slot] = self.clock + k
            self.uses[slot] = 0
        self.touch(slots)

    def remove(self, slots):
        for slot in slots:
            del self.rank[slot]

    def candidates(self):
        return [slot for slot in self.rank if self.evictable(slot)]

    def now_rank(self, slot):
        return self.rank[slot]

    def evict(self, n):
        victims = []
        while len(victims) < n and (candidates := self.candidates()):
            victims.append(min(candidates, key=self.now_rank))
            self.remove(victims[-1:])
        return victims


class Leaf(Ranked):
    """Only blocks without resident children go, unless all of those are pinned. Keys are those
    of ``kvbench.testing.strategies``, which tell their parent."""

    def __init__(self, context, rank_of=lambda model, slot: model.clock):
        super().__init__(context, rank_of)
        self.parents = {}

    def touch(self, slots):
        super().touch(slots)
        for slot in slots:
            parent = (self.keys[slot] - 1) // BRANCHES
            self.parents.setdefault(
                slot,
                next(
                    (other for other in range(self.capacity_) if self.refs[other] and self.keys[other] == parent), None
                ),
            )
            if self.parents[slot] is None:
                del self.parents[slot]

    def remove(self, slots):
        super().remove(slots)
        for slot in slots:
            self.parents.pop(slot, None)
            for child in [child for child, parent in self.parents.items() if parent == slot]:
                del self.parents[child]

    def candidates(self):
        evictable = super().candidates()
        return [slot for slot in evictable if slot not in self.parents.values()] or evictable


class TrtLlm(Leaf):
    """Priorities that override each other and end."""

    def __init__(self, context, retention_ns):
        super().__init__(context, TrtLlm.place)
        self.retention_ns, self.ends = retention_ns, {}

    def place(self, slot):
        self.ends.pop(slot, None)
        kept = self.rank[slot][0] if self.uses[slot] > 1 else 35
        priority = kept if self.priority < 0 else min(self.priority, 100)
        if self.priority >= 0 and self.retention_ns and priority != 35:
            self.ends[slot] = self.time_ns + self.retention_ns
        return priority, self.clock

    def expire(self):
        for slot in [slot for slot, end in self.ends.items() if end <= self.time_ns]:
            del self.ends[slot]
            self.clock += 1
            self.rank[slot] = 35, self.clock

    def touch(self, slots):
        self.expire()
        super().touch(slots)

    def remove(self, slots):
        super().remove(slots)
        for slot in slots:
            self.ends.pop(slot, None)

    def evict(self, n):
        self.expire()
        return super().evict(n)


class Continuum(Ranked):
    """Who returned in time is kept; the rank is (end of that, use that set it, last use)."""

    def __init__(self, context, ttl_ns, first):
        super().__init__(context, Continuum.place)
        self.ttl_ns, self.first_counts, self.judged, self.keeps, self.arrivals = ttl_ns, first, -1, False, {}

    def judge(self):
        if self.judged == self.request_index:
            return
        self.judged, pause = self.request_index, self.time_ns - self.arrivals.get(self.session, self.time_ns)
        known = self.session in self.arrivals
        self.keeps = self.session >= 0 and (pause <= self.ttl_ns if known else self.first_counts)
        if self.session >= 0:
            self.arrivals.pop(self.session, None)
            self.arrivals[self.session] = self.time_ns
            if len(self.arrivals) > self.capacity_:
                del self.arrivals[next(iter(self.arrivals))]

    def place(self, slot):
        self.judge()
        if self.keeps and self.ttl_ns:
            return self.time_ns + self.ttl_ns, self.clock, self.clock
        end, since, _ = self.rank[slot] if self.uses[slot] > 1 else (0, 0, 0)
        return (end, since, self.clock) if end > self.time_ns else (0, 0, self.clock)

    def now_rank(self, slot):
        end, since, last = self.rank[slot]
        return (True, since) if end > self.time_ns else (False, last)


class WorkloadAware(Ranked):
    """The formulas of the docstring; the rank is (category, use, time, position)."""

    def __init__(self, context):
        super().__init__(context, WorkloadAware.place)
        self.fits, self.life, self.known = {}, 0.0, False

    def place(self, slot):
        if self.uses[slot] > 1:
            fit = self.fits[self.rank[slot][0]]
            fit[1] += 1
            fit[2] += (self.time_ns - self.rank[slot][2]) * 1e-9
        category = min(self.type + 1, 7) * 8 + min(self.turn + 1, 7)
        self.fits.setdefault(category, [0, 0, 0.0])[0] += 1
        return category, self.clock, self.time_ns, self.position

    def candidates(self):
        ranks = sorted(self.rank[slot] for slot in super().candidates())
        oldest = {rank[0]: rank for rank in reversed(ranks)}
        return [slot for slot in self.rank if self.rank[slot] in oldest.values()]

    def now_rank(self, slot):
        category, _, used, position = self.rank[slot]
        uses, reuses, seconds = self.fits[category]
        chance, age = (reuses + 1) / (uses + 2), (self.time_ns - used) * 1e-9
        if seconds + self.life > 0:
            rate = (reuses + 1) / (seconds + self.life)
            chance *= exp(-rate * age) - exp(-rate * (age + self.life))
        return chance, -position, category

    def evict(self, n):
        times = {slot: rank[2] for slot, rank in self.rank.items()}
        victims = super().evict(n)
        for slot in victims:
            age = (self.time_ns - times[slot]) * 1e-9
            self.life += (age - self.life) / (64 if self.known else 1)
            self.known = True
        return victims


def told(policy, requests, order="tail-first", **facts):
    """What was stored and went, in order, and the prefix hits, with facts by name of the column."""
    log = EventLog()
    offsets = np.cumsum([0, *map(len, requests)])
    table = np.full((len(requests), 6), -1, dtype=np.int32)
    names = "input_tokens", "turn", "priority", "session_id", "tenant", "type"
    for name in set(facts) & set(names):
        table[:, names.index(name)] = facts[name]
    times = np.asarray(facts.get("arrival_ns", np.full(len(requests), -1)), dtype=np.int64)
    rows = np.zeros((len(requests), len(COUNTS)), dtype=np.int32)
    OrderReplay([Tier(policy, order=order, log=log)], log=log, keep_events=True).run(
        np.concatenate(requests).astype(np.uint64), offsets, np.diff(offsets).astype(np.int32), rows,
        time_ns=times, facts=table,
    )  # fmt: skip
    events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
    return list(zip(events["kind"].tolist(), events["key"].tolist(), strict=True)), rows[:, COUNTS.index("hit_blocks")]
