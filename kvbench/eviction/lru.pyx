"""LRU: evict the block whose last use is oldest.

Source: folklore; Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems
Journal 9 (2), 1970, for its stack property. Cost: O(1) a touched, inserted or evicted block;
8 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.slotlist cimport ListPolicy, Node, list_splice_front


@cython.final
cdef class Lru(ListPolicy):
    """A touched block moves to the front."""

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        # A prefix that is asked again lies in the list just as the last sweep left it. Such a
        # run moves as one splice: the loop only reads ahead in memory instead of writing three
        # scattered nodes a block.
        cdef Node* nodes = self.nodes
        cdef int32_t i = 0
        cdef int32_t j, first, last, before, after
        while i < n:
            j = i
            while j + 1 < n and nodes[slots[j] + 1].prev == slots[j + 1] + 1:
                j += 1
            first = slots[j] + 1
            last = slots[i] + 1
            before = nodes[first].prev
            if before != 0:
                after = nodes[last].next
                nodes[before].next = after
                nodes[after].prev = before
                list_splice_front(nodes, first, last)
            i = j + 1
        return 0
