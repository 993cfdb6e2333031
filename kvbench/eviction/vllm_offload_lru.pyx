"""vLLM's CPU offload, LRU: evict by (request of the last use, −position).

Source: vLLM 0.33 `v1/kv_offload/cpu` (E-41). The tail of the request that is longest ago goes
first, whatever the sweep order: recency is committed when a request ends, for all of its blocks.
A tail-first sweep makes it plain LRU. vLLM skips a store that does not fit as a whole; a tier
stores the leading blocks that fit. Cost: O(1) a block; 8 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.slotlist cimport ListPolicy, Node, list_push_front, list_push_many, list_unlink


cdef struct Place:
    int32_t node


@cython.final
cdef class VllmOffloadLru(ListPolicy):
    """A block follows the one before it in its request, towards the back."""

    cdef Place* last  # node of the block that a forward sweep told of last; 0: none

    def __cinit__(self, context):
        self.last = <Place*>self.allocate(1, sizeof(Place))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.unlink(slots[i] + 1)
        return self.insert_slots(slots, n)

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef Node* nodes = self.nodes
        cdef int32_t i, node, after
        if self.view.step < 0:
            list_push_many(nodes, slots, n)
            return 0
        if self.view.depth == 0:
            self.last.node = 0
        for i in range(n):
            node = slots[i] + 1
            after = nodes[self.last.node].next
            nodes[node].prev = self.last.node
            nodes[node].next = after
            nodes[self.last.node].next = node
            nodes[after].prev = node
            self.last.node = node
        return 0

    cdef void unlink(self, int32_t node) noexcept nogil:
        if self.last.node == node:
            self.last.node = self.nodes[node].prev
        list_unlink(self.nodes, node)

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.unlink(slots[i] + 1)
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t node = self.nodes[0].prev
        cdef int32_t newer, found = 0
        while found < n and node != 0:
            newer = self.nodes[node].prev
            if self.view.refs[node - 1] == 1:
                self.unlink(node)
                victims[found] = node - 1
                found += 1
            node = newer
        return found
