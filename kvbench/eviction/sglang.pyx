"""SGLang's radix cache: evict the leaf with the lowest key, by one of seven strategies.

Source: SGLang `srt/mem_cache/evict_policy.py` (E-50 … E-52). ``lru`` last use; ``lfu`` (uses, last
use); ``fifo`` first use; ``mru`` newest last use; ``filo`` newest first use; ``slru`` (used at
least twice, last use); ``priority`` (priority, last use), where a block keeps the highest priority
of its requests and a request without one counts as 0. Uses count from 1 at storing. Where SGLang
has a node for a run of tokens, this has one for each block. Cost: O(1) a touched inner block,
O(log leaves) otherwise; 68 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.leaf cimport LeafPolicy, leaf_born, leaf_place

cdef enum Strategy:
    LRU
    LFU
    FIFO
    MRU
    FILO
    SLRU
    PRIORITY

STRATEGIES = {
    "lru": LRU, "lfu": LFU, "fifo": FIFO, "mru": MRU, "filo": FILO, "slru": SLRU, "priority": PRIORITY,
}

cdef enum:
    PROTECTED_USES = 2


@cython.final
cdef class Sglang(LeafPolicy):
    """``strategy`` as above."""

    cdef int strategy
    cdef int32_t* facts  # uses, or the highest priority

    def __cinit__(self, context, *, str strategy="lru"):
        self.strategy = STRATEGIES[strategy]
        self.facts = <int32_t*>self.allocate(self.capacity, sizeof(int32_t))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            if self.strategy == PRIORITY:
                self.facts[slots[k]] = max(self.facts[slots[k]], self.view.request.priority)
            else:
                self.facts[slots[k]] += 1
            self.place(slots[k], k)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            leaf_born(self, slots[k], k)
            self.facts[slots[k]] = max(0, self.view.request.priority) if self.strategy == PRIORITY else 1
            self.ranks[slots[k]].key = 0
            self.place(slots[k], k)
        return 0

    cdef void place(self, int32_t slot, int32_t k) noexcept nogil:
        cdef int64_t key
        self.counts.clock += 1
        if self.strategy == FIFO or self.strategy == FILO:
            key = self.ranks[slot].key
            if key == 0:
                key = self.counts.clock if self.strategy == FIFO else -self.counts.clock
            leaf_place(self, slot, k, key, 0)
        elif self.strategy == MRU:
            leaf_place(self, slot, k, -self.counts.clock, 0)
        elif self.strategy == LRU:
            leaf_place(self, slot, k, self.counts.clock, 0)
        elif self.strategy == SLRU:
            leaf_place(self, slot, k, self.facts[slot] >= PROTECTED_USES, self.counts.clock)
        else:
            leaf_place(self, slot, k, self.facts[slot], self.counts.clock)


def sglang_priority(context):
    """The strategy that needs a column of the trace."""
    return Sglang(context, strategy="priority")
