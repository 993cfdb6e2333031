"""Belady: evict the block whose next use is farthest away.

It knows the future: the replay first reads the whole trace to find each block's next use. Of
blocks that the same request asks for next, the deepest goes first, so an ancestor outlives its
descendants. A newcomer is always stored. (The bound beside every summary may turn newcomers away;
it is never below this policy.)

Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
Journal 5 (2), 1966. Cost: O(log capacity) a touched, stored or evicted block; 28 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.heap cimport Heap, heap_evict, heap_init, heap_push, heap_remove, heap_update
from kvbench.eviction.policy cimport EvictionPolicy

from kvbench.errors import PolicyError


@cython.final
cdef class Belady(EvictionPolicy):
    """The heap's least is the farthest next use, then the deepest block."""

    cdef Heap heap

    def __cinit__(self, context):
        heap_init(&self.heap, self, self.capacity)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        return self.rank(slots, n, True)

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        return self.rank(slots, n, False)

    cdef int rank(self, const int32_t* slots, int32_t n, bint known) except -1 nogil:
        cdef int32_t k, depth
        if self.view.next_use == NULL:
            with gil:
                raise PolicyError("belady needs the next use of each block, which this replay does not know")
        for k in range(n):
            depth = self.view.depth + k * self.view.step
            if known:
                heap_update(&self.heap, slots[k], -<int64_t>self.view.next_use[depth], -depth)
            else:
                heap_push(&self.heap, slots[k], -<int64_t>self.view.next_use[depth], -depth)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            heap_remove(&self.heap, slots[k])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        return heap_evict(&self.heap, self.view.refs, n, victims)
