"""Naive Python models of the classic policies: the rule and nothing else, pins included."""

from __future__ import annotations

from collections import Counter

from kv_models import Ranked

from kvbench.eviction import PythonPolicy


class LruK(Ranked):
    """Fewer than k uses: by the time of storing, before all others; else by the k-th last use."""

    def __init__(self, context, k):
        super().__init__(context, self.key)
        self.k, self.times = k, {}

    def insert(self, slots):
        self.times.update({slot: [] for slot in slots})
        super().insert(slots)

    @staticmethod
    def key(self, slot):
        times = self.times[slot]
        times.append(self.clock)
        return (True, times[-self.k]) if len(times) >= self.k else (False, times[0])


class Queue(PythonPolicy):
    """Slots in order of storing, oldest first, and a counter each."""

    def __init__(self, context, most=1, init_freq=0):
        self.most, self.init_freq = most, init_freq
        self.queue, self.counter = [], {}

    def touch(self, slots):
        for slot in slots:
            self.counter[slot] = min(self.counter[slot] + 1, self.most)

    def insert(self, slots):
        self.queue += slots
        self.counter.update(dict.fromkeys(slots, self.init_freq))

    def remove(self, slots):
        for slot in slots:
            self.queue.remove(slot)

    def evict(self, n):
        return [self.evict_one() for _ in range(min(n, sum(map(self.evictable, self.queue))))]


class Clock(Queue):
    """The oldest goes to the young end until its counter is 0; pinned blocks stay where they are."""

    def evict_one(self):
        at = 0
        while True:
            slot = self.queue[at % len(self.queue)]
            if not self.evictable(slot):
                at += 1
                continue
            self.queue.remove(slot)
            if self.counter[slot] == 0:
                return slot
            self.counter[slot] -= 1
            self.queue.append(slot)


class Sieve(Queue):
    """The hand is the slot to look at next, or None for the oldest."""

    hand = None

    def remove(self, slots):
        for slot in slots:
            if slot == self.hand:
                self.hand = self.younger(slot)
            self.queue.remove(slot)

    def younger(self, slot):
        at = self.queue.index(slot) + 1
        return self.queue[at] if at < len(self.queue) else None

    def evict_one(self):
        while True:
            slot = self.queue[0] if self.hand is None else self.hand
            if self.evictable(slot) and self.counter[slot] == 0:
                self.hand = slot
                self.remove([slot])
                return slot
            if self.evictable(slot):
                self.counter[slot] = 0
            self.hand = self.younger(slot)


class LfuDa(PythonPolicy):
    """libCacheSim's edition: classes of equal keys, each in order of joining."""

    def __init__(self, context):
        self.age, self.key = 0, {}  # the dict keeps the order of joining

    def move_age(self):
        if self.age not in self.key.values():
            self.age = min((key for key in self.key.values() if key > self.age), default=self.age)

    def touch(self, slots):
        for slot in slots:
            key, age = self.key.pop(slot), self.age
            if key == age:
                self.move_age()
            self.key[slot] = key + age

    def insert(self, slots):
        self.key.update((slot, self.age + 1) for slot in slots)

    def remove(self, slots):
        for slot in slots:
            del self.key[slot]

    def evict(self, n):
        victims = []
        while len(victims) < n and (free := [slot for slot in self.key if self.evictable(slot)]):
            above = [slot for slot in free if self.key[slot] >= self.age]
            victims.append(min(above or free, key=self.key.get))
            self.age = max(self.age, self.key.pop(victims[-1]))
            self.move_age()
        return victims


class Hyperbolic(PythonPolicy):
    """Looks at all blocks, as the policy does with few. A gap is filled with the last of them."""

    def __init__(self, context):
        self.clock, self.members, self.stored, self.uses = 0, [], {}, Counter()

    def touch(self, slots):
        self.clock += len(slots)
        self.uses.update(list(slots))

    def insert(self, slots):
        for slot in slots:
            self.clock += 1
            self.stored[slot], self.uses[slot] = self.clock, 1
            self.members.append(slot)

    def remove(self, slots):
        for slot in slots:
            last = self.members.pop()
            if last != slot:
                self.members[self.members.index(slot)] = last

    def evict(self, n):
        victims = []
        while len(victims) < n and (free := [slot for slot in self.members if self.evictable(slot)]):
            victims.append(min(free, key=lambda slot: self.uses[slot] / (self.clock + 1 - self.stored[slot])))
            self.remove(victims[-1:])
        return victims
