"""LFU with counts that outlive the block: evict the block that was used least often, ever.

Source: folklore ("perfect LFU"). Counts of evicted blocks are remembered, so a block that returns
goes on from its old count; at equal counts the oldest last use goes. Memory is bounded: of evicted
keys the ``ghosts`` × capacity youngest are remembered, and counts are perfect as long as no more
are gone. Cost: O(log n) a block; 32 bytes a slot and some 30 a remembered key.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.heap cimport Heap, heap_evict, heap_init, heap_key, heap_push, heap_remove, heap_update
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport ghosts_of


cdef struct Counts:
    int64_t clock


@cython.final
cdef class LfuPerfect(EvictionPolicy):
    """``ghosts``: keys remembered for each block of capacity."""

    cdef Heap heap
    cdef Ghost gone
    cdef int32_t* uses  # of the blocks in the slots, for when they go
    cdef Counts* counts

    def __cinit__(self, context, *, double ghosts=10.0):
        heap_init(&self.heap, self, self.capacity)
        ghost_init(&self.gone, self, ghosts_of(self, ghosts))
        self.uses = <int32_t*>self.allocate(self.capacity, sizeof(int32_t))
        self.counts = <Counts*>self.allocate(1, sizeof(Counts))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.counts.clock += 1
            self.uses[slots[i]] += 1
            heap_update(&self.heap, slots[i], self.uses[slots[i]], self.counts.clock)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, entry
        for i in range(n):
            self.counts.clock += 1
            self.uses[slots[i]] = 1
            entry = ghost_find(&self.gone, self.view.keys[slots[i]])
            if entry != 0:
                self.uses[slots[i]] += self.gone.values[entry]
                ghost_remove(&self.gone, entry)
            heap_push(&self.heap, slots[i], self.uses[slots[i]], self.counts.clock)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            heap_remove(&self.heap, slots[i])
            self.remember(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t i
        cdef int32_t found = heap_evict(&self.heap, self.view.refs, n, victims)
        for i in range(found):
            self.remember(victims[i])
        return found

    cdef void remember(self, int32_t slot) noexcept nogil:
        ghost_push(&self.gone, self.view.keys[slot], self.uses[slot])
