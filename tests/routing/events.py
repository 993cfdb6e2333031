"""Events as workers send them, for tests."""

from __future__ import annotations

import numpy as np

from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS


def event(kind, worker, key, sequence, *, tier=0, store=None, parent=None, source=None, source_store=None):
    """One packed event; its store is the worker's own unless it is given."""
    record = np.zeros(1, dtype=np.dtype(list(EVENT_FIELDS)))
    record["kind"] = EVENT_KINDS.index(kind)
    record["worker"] = worker
    record["store"] = worker if store is None else store
    record["key"] = key
    record["sequence"] = sequence
    record["tier"] = tier
    if parent is not None:
        record["parent"], record["has_parent"] = parent, 1
    record["source"] = 255 if source is None else source
    record["source_store"] = worker if source_store is None else source_store
    return record.tobytes()


class Worker:
    """Numbers its events."""

    def __init__(self, feed, number):
        self.feed, self.number, self.sent = feed, number, 0

    def tell(self, kind, key, **place):
        self.feed.receive(event(kind, self.number, key, self.sent, **place), 0)
        self.sent += 1

    def store(self, keys, tier=0):
        """Store a chain of keys."""
        for parent, key in zip([None, *keys], keys, strict=False):
            self.tell("INSERT", key, tier=tier, parent=parent)
