"""Naive models of adaptive policies, block by block: keys asked for in, keys evicted out, in order."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Car:
    """CAR as Bansal and Modha (FAST 2004, figure 2) have it. Clocks run from the hand on, each key with
    its reference bit; ghosts from the least recent on."""

    capacity: int
    target: float = 0
    t1: dict[int, bool] = field(default_factory=dict)
    t2: dict[int, bool] = field(default_factory=dict)
    b1: list[int] = field(default_factory=list)
    b2: list[int] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)

    def ask(self, key: int) -> None:
        for clock in (self.t1, self.t2):
            if key in clock:
                clock[key] = True
                return
        new = key not in self.b1 + self.b2
        if len(self.t1) + len(self.t2) == self.capacity:
            self.replace()
            if new and len(self.t1) + len(self.b1) == self.capacity:
                self.b1.pop(0)
            elif new and sum(map(len, (self.t1, self.t2, self.b1, self.b2))) == 2 * self.capacity:
                self.b2.pop(0)
        if new:
            self.t1[key] = False
        elif key in self.b1:
            self.target = min(self.target + max(1, len(self.b2) / len(self.b1)), self.capacity)
            self.b1.remove(key)
            self.t2[key] = False
        else:
            self.target = max(self.target - max(1, len(self.b1) / len(self.b2)), 0)
            self.b2.remove(key)
            self.t2[key] = False

    def replace(self) -> None:
        while True:
            clock, ghosts = (self.t1, self.b1) if len(self.t1) >= max(1, self.target) else (self.t2, self.b2)
            key = next(iter(clock))
            if not clock.pop(key):
                ghosts.append(key)
                self.evicted.append(key)
                return
            self.t2[key] = False


@dataclass
class Lirs:
    """LIRS with lists, the oldest first. The bottom of ``stack`` is a LIR block, or it is empty.
    ``pinned`` are the blocks of the request being served, which stay."""

    capacity: int
    hir: float
    lir: set[int] = field(default_factory=set)
    stack: list[int] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    ghosts: list[int] = field(default_factory=list)
    pinned: set[int] = field(default_factory=set)
    evicted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue_share = max(1, int(self.capacity * self.hir))
        self.lir_share = self.capacity - self.queue_share

    def serve(self, request: list[int]) -> None:
        """Ask for all keys of a request that fits, from its tail."""
        self.pinned = self.lir.union(self.queue).intersection(request)
        for key in reversed(request):
            self.ask(key)
            self.pinned.add(key)
        self.pinned = set()

    def ask(self, key: int) -> None:
        if key in self.lir:
            self.push(key)
            self.prune()
        elif key in self.queue:
            self.use_again(key)
        else:
            self.store(key)

    def use_again(self, key: int) -> None:
        rises = key in self.stack and self.lir_share > 0
        self.queue.remove(key)
        if not rises:
            self.queue.append(key)
        self.make_room_for_lir()
        if rises:
            self.lir.add(key)
        self.push(key)
        if len(self.queue) > self.queue_share:
            self.evict_from(self.queue)

    def store(self, key: int) -> None:
        known = key in self.ghosts
        if known:
            self.ghosts.remove(key)
            self.stack.remove(key)
        if len(self.lir) + len(self.queue) == self.capacity:
            self.evict_from(self.queue) or self.evict_from([key for key in self.stack if key in self.lir])
        if known:
            self.make_room_for_lir()
        if len(self.lir) < self.lir_share:
            self.lir.add(key)
        else:
            self.queue.append(key)
        self.push(key)

    def make_room_for_lir(self) -> None:
        if self.lir and len(self.lir) == self.lir_share:
            self.lir.remove(self.stack[0])
            self.queue.append(self.stack.pop(0))
            self.prune()

    def push(self, key: int) -> None:
        if key in self.stack:
            self.stack.remove(key)
        if self.lir:
            self.stack.append(key)
        while len(self.stack) > 2 * self.capacity and self.ghosts:
            self.stack.remove(self.ghosts.pop(0))

    def prune(self) -> None:
        while self.stack and self.stack[0] not in self.lir:
            key = self.stack.pop(0)
            if key in self.ghosts:
                self.ghosts.remove(key)

    def evict_from(self, candidates: list[int]) -> bool:
        key = next((key for key in candidates if key not in self.pinned), None)
        if key is None:
            return False
        self.evicted.append(key)
        if key in self.lir:
            self.lir.remove(key)
            self.stack.remove(key)
            self.prune()
        else:
            self.queue.remove(key)
            if key in self.stack:
                self.ghosts.append(key)
        return True
