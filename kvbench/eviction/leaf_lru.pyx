"""Leaf LRU: of the blocks without resident children, evict the one whose last use is oldest.

What radix-tree caches do by default (SGLang E-50 `lru`; kvcache-simulator 0.1.3 "leaf LRU"). With
tail-first sweeps and pins on whole prefixes it evicts as plain LRU does; with other sweep orders
it keeps heads that LRU would lose. Cost: O(1) a touched inner block, O(log leaves) otherwise; 64
bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.leaf cimport LeafPolicy, leaf_born, leaf_place


@cython.final
cdef class LeafLru(LeafPolicy):
    """Ranked by the number of the last use."""

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            self.counts.clock += 1
            leaf_place(self, slots[k], k, self.counts.clock, 0)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            leaf_born(self, slots[k], k)
        return self.touch_slots(slots, n)
