"""GDSF, Greedy-Dual-Size with Frequency: evict the block with the lowest age + uses, where the age
is the priority of the last victim at the time of the block's last use. So a block that was used
often stays longer, but not for ever. Ties go to the block whose last use is older.

Source: Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching
policy", HP Labs 1998, for blocks of one size, as libCacheSim 0.3.5 does it: the newcomer is stored
first and may itself be the victim. With one size it is also LFU with dynamic aging, as in Arlitt
et al., "Evaluating content management techniques for web proxy caches", 2000. Cost: O(1) a
touched block, O(log n) an inserted or evicted one; 52 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.heap cimport Heap, HeapRank, heap_evict_lazy, heap_init, heap_push, heap_remove
from kvbench.eviction.policy cimport EvictionPolicy


cdef struct Clocks:
    int64_t age
    int64_t uses  # of all blocks: the tie-breaker


@cython.final
cdef class Gdsf(EvictionPolicy):
    """Priorities only rise, so a touch writes the new one down and leaves the heap alone."""

    cdef Heap heap
    cdef HeapRank* ranks
    cdef int64_t* counts
    cdef Clocks* clocks

    def __cinit__(self, context):
        cdef size_t slots = <size_t>self.capacity + 1
        self.one_by_one = self.insert_first = True
        heap_init(&self.heap, self, slots)
        self.ranks = <HeapRank*>self.allocate(slots, sizeof(HeapRank))
        self.counts = <int64_t*>self.allocate(slots, sizeof(int64_t))
        self.clocks = <Clocks*>self.allocate(1, sizeof(Clocks))

    cdef void use(self, int32_t slot) noexcept nogil:
        self.clocks.uses += 1
        self.counts[slot] += 1
        self.ranks[slot].key = self.clocks.age + self.counts[slot]
        self.ranks[slot].tie = self.clocks.uses

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.use(slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.counts[slots[i]] = 0
            self.use(slots[i])
            heap_push(&self.heap, slots[i], self.ranks[slots[i]].key, self.ranks[slots[i]].tie)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            heap_remove(&self.heap, slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = heap_evict_lazy(&self.heap, self.ranks, self.view.refs, n, victims)
        if found > 0:
            # Pinned blocks that were passed over can have let a dearer one go before.
            self.clocks.age = max(self.clocks.age, self.ranks[victims[found - 1]].key)
        return found
