"""Semantics §5.1 for one tier, in lists and dicts: what the compiled tier must agree with."""

from collections import Counter


class NaiveTier:
    """``queue`` has the resident keys, next victim first; ``lru``: a use moves a key to its end."""

    def __init__(self, capacity: int, order: str, lru: bool) -> None:
        self.capacity, self.order, self.lru = capacity, order, lru
        self.queue: list[int] = []
        self.pins: Counter[int] = Counter()
        self.events: list[tuple[str, int, int | None]] = []

    def serve(self, keys: list[int]) -> dict[str, int]:
        self.counts = dict.fromkeys(("hit", "resident", "stored", "evicted", "truncated"), 0)
        if self.order != "access":
            self.serve_part(keys, None, keys)
        else:
            for parent, key in zip([None, *keys], keys, strict=False):
                self.serve_part([key], parent, keys)
        return self.counts

    def serve_part(self, part: list[int], parent: int | None, keys: list[int]) -> None:
        held = [key in self.queue for key in part]
        if part and keys.index(part[0]) == self.counts["hit"]:
            self.counts["hit"] += [*held, False].index(False)
        room, fits = self.capacity - len(self.pins), []
        for key in part:
            room -= key not in self.pins
            if room < 0:
                break
            fits.append(key)
        need = sum(key not in self.queue for key in fits) + len(self.queue) - self.capacity
        for victim in [key for key in self.queue if key not in self.pins and key not in fits][: max(need, 0)]:
            self.queue.remove(victim)
            self.events.append(("evicted", victim, None))
            self.counts["evicted"] += 1
        new = [key for key in fits if key not in self.queue]
        parents = dict(zip(part, [parent, *part], strict=False))
        self.events += [("computed", key, parents[key]) for key in new]
        self.counts["resident"] += sum(held)
        self.counts["stored"] += len(new)
        self.counts["truncated"] += sum(key not in self.queue and key not in new for key in part)
        for key in reversed(part) if self.order == "tail-first" else part:
            if key in new or (self.lru and key in self.queue):
                self.queue = [other for other in self.queue if other != key] + [key]

    def pin(self, keys: list[int]) -> int:
        held = keys[: [*(key in self.queue for key in keys), False].index(False)]
        self.pins.update(held)
        return len(held)

    def remove(self, keys: list[int]) -> None:
        for key in (key for key in keys if key in self.queue and key not in self.pins):
            self.queue.remove(key)
            self.events.append(("removed", key, None))
