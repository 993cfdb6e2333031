"""decay-lfu: evict the block with the lowest decayed use count, kept in NumPy arrays.

A use counts 1 when it happens and half as much ``half_life`` requests later. Instead of ageing
every score, the value of a new use grows; scores are scaled down before they get too large. (The
idea is that of LRFU: Lee et al., IEEE Transactions on Computers 50(12), 2001.) Cost: one array
operation a call, and a sort of the tier's slots for each request that evicts.
"""

import numpy as np

import kvbench
from kvbench.eviction import PythonPolicy

RESCALE_AT = 1e100


class DecayLfu(PythonPolicy):
    """``score`` is the decayed count of each slot, ``stored`` the order in which they were filled."""

    def __init__(self, context, half_life=1000.0):
        super().__init__(context)
        self.growth = 2.0 ** (1.0 / half_life)
        self.value = 1.0
        self.request = 0
        self.score = np.zeros(context.capacity)
        self.stored = np.zeros(context.capacity, dtype=np.int64)
        self.clock = 0

    def insert(self, slots):
        slots = np.asarray(slots)
        self.age()
        self.score[slots] = self.value
        self.stored[slots] = self.clock + np.arange(len(slots))
        self.clock += len(slots)

    def touch(self, slots):
        self.age()
        self.score[np.asarray(slots)] += self.value

    def remove(self, slots):
        """The tier's ``refs`` say which slots are free; nothing else needs to be forgotten."""

    def evict(self, n):
        free_to_go = np.flatnonzero(np.asarray(self.refs) == 1)
        order = np.lexsort((self.stored[free_to_go], self.score[free_to_go]))
        return free_to_go[order[:n]].tolist()

    def age(self):
        self.value *= self.growth ** (self.request_index - self.request)
        self.request = self.request_index
        if self.value > RESCALE_AT:
            self.score /= self.value
            self.value = 1.0


@kvbench.hookimpl
def kvbench_eviction_policies():
    yield kvbench.EvictionPolicySpec(
        "decay-lfu",
        DecayLfu,
        "evict the block with the lowest decayed use count",
        params=(kvbench.Param("half_life", float, 1000.0, "requests after which a use counts half", minimum=1),),
        source="Lee et al., IEEE Transactions on Computers 50(12), 2001",
    )
