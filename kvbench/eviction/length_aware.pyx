"""LengthAware: as LFU, but at equal counts the position in the request decides.

Source: Mooncake, arXiv 2407.00079, table 1 (E-66). The authors' code is not public, so both
readings of "blocks late in their requests go first" are here: ``out=high`` evicts the highest
position first, ``out=low`` the lowest; then the oldest last use. Counts start at 1 and are
forgotten with the block; the position is that of the last use. Cost: O(log n) a block; 28 bytes a
slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.heap cimport Heap, heap_evict, heap_init, heap_key, heap_push, heap_remove, heap_update
from kvbench.eviction.policy cimport EvictionPolicy

cdef enum:
    COUNT_BIT = 31  # a key holds the count above the position


cdef struct Counts:
    int64_t clock


@cython.final
cdef class LengthAware(EvictionPolicy):
    """``out`` is ``high`` or ``low``."""

    cdef Heap heap
    cdef Counts* counts
    cdef bint high

    def __cinit__(self, context, *, str out="high"):
        self.high = out == "high"
        heap_init(&self.heap, self, self.capacity)
        self.counts = <Counts*>self.allocate(1, sizeof(Counts))

    cdef int64_t key(self, int64_t count, int32_t k) noexcept nogil:
        cdef int64_t position = self.view.depth + k * self.view.step
        if self.high:
            position = (<int64_t>1 << COUNT_BIT) - 1 - position
        return (count << COUNT_BIT) + position

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        cdef int64_t count
        for k in range(n):
            count = (heap_key(&self.heap, slots[k]) >> COUNT_BIT) + 1
            self.counts.clock += 1
            heap_update(&self.heap, slots[k], self.key(count, k), self.counts.clock)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            self.counts.clock += 1
            heap_push(&self.heap, slots[k], self.key(1, k), self.counts.clock)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            heap_remove(&self.heap, slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        return heap_evict(&self.heap, self.view.refs, n, victims)
