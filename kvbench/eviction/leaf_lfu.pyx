"""Leaf LFU: of the blocks without resident children, evict the one used least often.

Source: radix-tree caches (SGLang E-50 `lfu`). Counts start at 1 and are forgotten with the block;
at equal counts the oldest last use goes. Cost: O(1) a touched inner block, O(log leaves)
otherwise; 64 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.leaf cimport LeafPolicy, leaf_born, leaf_place


@cython.final
cdef class LeafLfu(LeafPolicy):
    """Ranked by the number of uses, then by the last one."""

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            self.counts.clock += 1
            leaf_place(self, slots[k], k, self.ranks[slots[k]].key + 1, self.counts.clock)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            leaf_born(self, slots[k], k)
            self.ranks[slots[k]].key = 0
        return self.touch_slots(slots, n)
