"""LRU-K: evict the block whose k-th last use is oldest. Blocks with fewer than k uses, the storing
among them, go first, in the order of storing. A block's history is forgotten with it.

Source: O'Neil, O'Neil and Weikum, "The LRU-K page replacement algorithm for database disk
buffering", SIGMOD 1993, without its retained information, as libCacheSim 0.3.5 does it. Every
block of a request is a use of its own. Cost: O(1) a touched or inserted block; O(1) an evicted one
with fewer than k uses, else O(log n); 56 + 8 k bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.heap cimport (
    Heap, HeapRank, heap_contains, heap_evict_lazy, heap_init, heap_push, heap_remove,
)
from kvbench.eviction.slotlist cimport ListPolicy, list_evict_back, list_push_many, list_unlink

from kvbench.errors import ConfigError


@cython.final
cdef class LruK(ListPolicy):
    """The list holds the blocks with fewer than k uses, the heap those with more.

    The last k uses of a slot are a ring in ``times``; its oldest is the one that ``uses`` says
    will be overwritten next, and it is the slot's key. Keys only rise, so the heap may be lazy.
    """

    cdef int32_t k
    cdef Heap heap
    cdef HeapRank* ranks
    cdef int64_t* times
    cdef int32_t* uses    # below k: so many; from there on k + the place to overwrite
    cdef int64_t* clock

    def __cinit__(self, context, *, int k=2):
        if not 1 <= k <= 64:
            raise ConfigError(f"lru-k: k = {k} is not within 1 … 64")
        self.k = k
        heap_init(&self.heap, self, self.capacity)
        self.ranks = <HeapRank*>self.allocate(self.capacity, sizeof(HeapRank))
        self.times = <int64_t*>self.allocate(<size_t>self.capacity * k, sizeof(int64_t))
        self.uses = <int32_t*>self.allocate(self.capacity, sizeof(int32_t))
        self.clock = <int64_t*>self.allocate(1, sizeof(int64_t))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.use(slots[i]):
                list_unlink(self.nodes, slots[i] + 1)
                heap_push(&self.heap, slots[i], self.ranks[slots[i]].key, 0)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.uses[slots[i]] = 0
            if self.use(slots[i]):
                heap_push(&self.heap, slots[i], self.ranks[slots[i]].key, 0)
        if self.k > 1:
            list_push_many(self.nodes, slots, n)
        return 0

    cdef bint use(self, int32_t slot) noexcept nogil:
        """Note a use; true if it is the k-th."""
        cdef int64_t* times = self.times + <size_t>slot * self.k
        cdef int32_t uses = self.uses[slot]
        self.clock[0] += 1
        times[uses if uses < self.k else uses - self.k] = self.clock[0]
        uses += 1
        if uses == 2 * self.k:
            uses = self.k
        self.uses[slot] = uses
        if uses >= self.k:
            self.ranks[slot].key = times[uses - self.k]
            return not heap_contains(&self.heap, slot)
        return False

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if heap_contains(&self.heap, slots[i]):
                heap_remove(&self.heap, slots[i])
            else:
                list_unlink(self.nodes, slots[i] + 1)
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef const int32_t* refs = self.view.refs
        cdef int32_t found = list_evict_back(self.nodes, refs, n, victims)
        if found < n:
            found += heap_evict_lazy(&self.heap, self.ranks, refs, n - found, victims + found)
        return found
