"""What the model of timed replay is made of: stores of blocks, and links that move them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

NEVER = math.inf


@dataclass(eq=False)
class Block:
    pins: int = 0
    pending: bool = False


class Store:
    """The blocks of a tier, the least recent first, and the part of it that is for no block of the cache."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = NEVER if capacity is None else capacity
        self.blocks: dict[int, Block] = {}
        self.private = 0

    def landed(self, key: int) -> bool:
        return key in self.blocks and not self.blocks[key].pending

    def pinned(self) -> int:
        return sum(block.pins > 0 for block in self.blocks.values())

    def make_room(self, count: int, spared: Iterable[int] = ()) -> list[Block]:
        """Evict the least recent blocks that nobody uses until ``count`` are free."""
        own, gone = set(spared), []
        while len(self.blocks) + self.private + count > self.capacity:
            key = next(key for key, block in self.blocks.items() if not block.pins and key not in own)
            gone.append(self.blocks.pop(key))
        return gone

    def sweep(self, keys: Sequence[int], new: set[int]) -> None:
        """From the last to the first: what is here is used, and what is ``new`` is stored, under way."""
        for key in reversed(keys):
            if key in self.blocks:
                self.blocks[key] = self.blocks.pop(key)
            elif key in new:
                self.blocks[key] = Block(pending=True)

    def fitting(self, keys: Sequence[int], wanted: set[int]) -> int:
        """How many leading blocks of a request can be here at once, beside what others have pinned."""
        room = self.capacity - self.private - self.pinned()
        for count, key in enumerate(keys):
            takes = not self.blocks[key].pins if key in self.blocks else key in wanted
            if takes and room == 0:
                return count
            room -= takes
        return len(keys)


@dataclass
class Transfer:
    size: int
    latency_ns: int
    order: int
    on_end: object
    left: Fraction = Fraction(0)
    waits_ns: Fraction = Fraction(0)


class Link:
    """Latency, then bandwidth: for all that flow at once in equal parts, or for one after the other."""

    def __init__(self, bytes_per_ns: Fraction, fair: bool) -> None:
        self.speed = bytes_per_ns
        self.fair = fair
        self.queue: list[Transfer] = []
        self.under_way: list[Transfer] = []
        self.at = Fraction(0)

    def start(self, transfer: Transfer, now: int) -> None:
        self.run(Fraction(now))
        transfer.left = Fraction(transfer.size)
        transfer.waits_ns = Fraction(transfer.latency_ns)
        self.queue.append(transfer)
        self._admit()

    def _admit(self) -> None:
        while self.queue and (self.fair or not self.under_way):
            self.under_way.append(self.queue.pop(0))

    def _next(self) -> Fraction | None:
        """How long until something changes."""
        flowing = [each for each in self.under_way if each.waits_ns == 0]
        changes = [each.waits_ns for each in self.under_way if each.waits_ns > 0]
        changes += [each.left * len(flowing) / self.speed for each in flowing]
        return min(changes, default=None)

    def run(self, until: Fraction) -> list[tuple[int, Transfer]]:
        """Let time pass; who ended, and in which whole nanosecond."""
        ended = []
        while True:
            step = self._next()
            if step is None or self.at + step > until:
                self._pass(until - self.at)
                return ended
            self._pass(step)
            for each in [each for each in self.under_way if each.waits_ns == 0 and each.left == 0]:
                self.under_way.remove(each)
                ended.append((math.ceil(self.at), each))
            self._admit()

    def _pass(self, step: Fraction) -> None:
        flowing = [each for each in self.under_way if each.waits_ns == 0]
        for each in self.under_way:
            if each.waits_ns > 0:
                each.waits_ns -= step
        for each in flowing:
            each.left -= step * self.speed / len(flowing)
        self.at += step

    def next_end(self) -> float:
        """The whole nanosecond in which the next one ends, if nothing is added."""
        copy = Link(self.speed, self.fair)
        copy.at = self.at
        copies = {id(each): Transfer(each.size, 0, 0, None, each.left, each.waits_ns) for each in self.under_way}
        copy.under_way = list(copies.values())
        while copy.under_way:
            step = copy._next()
            assert step is not None
            copy._pass(step)
            if any(each.waits_ns == 0 and each.left == 0 for each in copy.under_way):
                return math.ceil(copy.at)
        return NEVER
