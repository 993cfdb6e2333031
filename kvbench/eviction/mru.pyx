"""MRU: evict the block whose last use is most recent. The worst of all where recency matters,
and the best for a loop over more blocks than fit.

Source: folklore. The victim is chosen before the newcomer enters. Cost: O(1) a touched, inserted
or evicted block; 8 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.slotlist cimport ListPolicy, list_push_front, list_unlink


@cython.final
cdef class Mru(ListPolicy):
    """LRU's list, evicted from the front."""

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.nodes, slots[i] + 1)
            list_push_front(self.nodes, slots[i] + 1)
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef const int32_t* refs = self.view.refs
        cdef int32_t node = self.nodes[0].next
        cdef int32_t after, found = 0
        while found < n and node != 0:
            after = self.nodes[node].next
            if refs[node - 1] == 1:
                victims[found] = node - 1
                found += 1
                list_unlink(self.nodes, node)
            node = after
        return found
