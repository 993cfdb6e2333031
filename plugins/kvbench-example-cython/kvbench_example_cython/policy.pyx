"""never-hit-first: blocks that were not used since they were stored go first, each group by age.

Compiled, as the policies that ship with kvbench are: two lists threaded through the slots, no
Python object in any loop. Cost: O(1) a touched, stored or evicted block; 9 bytes a slot.
"""

# cython: language_level=3, boundscheck=False, wraparound=False

cimport cython
from libc.stdint cimport int32_t, uint8_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node, list_evict_back, list_push_front, list_push_many, list_unlink

@cython.final
cdef class NeverHitFirst(EvictionPolicy):
    """``fresh`` and ``used`` are lists, newest first; ``hit[slot]`` says which one a slot is in."""

    cdef Node* fresh
    cdef Node* used
    cdef uint8_t* hit

    def __cinit__(self, context):
        # All state comes from allocate: it is freed with the policy, and snapshots are free.
        self.fresh = <Node*>self.allocate(<size_t>self.capacity + 1, sizeof(Node))
        self.used = <Node*>self.allocate(<size_t>self.capacity + 1, sizeof(Node))
        self.hit = <uint8_t*>self.allocate(self.capacity, 1)

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.hit[slots[i]] = 0
        list_push_many(self.fresh, slots, n)
        return 0

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.list_of(slots[i]), slots[i] + 1)
            self.hit[slots[i]] = 1
            list_push_front(self.used, slots[i] + 1)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.list_of(slots[i]), slots[i] + 1)
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = list_evict_back(self.fresh, self.view.refs, n, victims)
        return found + list_evict_back(self.used, self.view.refs, n - found, victims + found)

    cdef Node* list_of(self, int32_t slot) noexcept nogil:
        return self.used if self.hit[slot] else self.fresh
