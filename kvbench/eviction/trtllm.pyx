"""TensorRT-LLM: evict a leaf of the lowest priority, the oldest last use among those.

Source: TensorRT-LLM `batch_manager/evictionPolicy.cpp` (E-58). Priorities are 0 to 100. A block
without one has 35; a request's priority overrides that of every block it uses, and a request
without a priority leaves blocks as they are. With ``retention_s`` a priority lasts that long after
its last use; then the block counts as just released at priority 35. Ranges of tokens with
priorities of their own are not in traces, so a request has one. Cost: O(1) a touched inner block,
O(log leaves) otherwise; 80 bytes a slot.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from kvbench.eviction.leaf cimport LeafPolicy, leaf_born, leaf_place, leaf_rerank
from kvbench.eviction.queues cimport queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

cdef enum:
    DEFAULT_PRIORITY = 35
    MAX_PRIORITY = 100


@cython.final
cdef class TrtLlm(LeafPolicy):
    """``retention_s`` 0: priorities last."""

    cdef int64_t retention_ns
    cdef Node* expiring     # blocks whose priority ends, the next to end at the back
    cdef int64_t* ends_ns   # 0: never

    def __cinit__(self, context, *, double retention_s=0.0):
        self.retention_ns = <int64_t>min(retention_s * 1e9, <double>(INT64_MAX // 2))
        self.expiring = queues_make(self, self.capacity, 1)
        self.ends_ns = <int64_t*>self.allocate(self.capacity, sizeof(int64_t))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        self.expire()
        for k in range(n):
            self.place(slots[k], k, self.ranks[slots[k]].key)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        self.expire()
        for k in range(n):
            leaf_born(self, slots[k], k)
            self.place(slots[k], k, DEFAULT_PRIORITY)
        return 0

    cdef void place(self, int32_t slot, int32_t k, int64_t priority) noexcept nogil:
        cdef int32_t asked = self.view.request.priority
        self.release(slot)
        if asked >= 0:
            priority = min(asked, MAX_PRIORITY)
            if self.retention_ns > 0 and priority != DEFAULT_PRIORITY:
                self.ends_ns[slot] = self.view.request.time_ns + self.retention_ns
                queue_push(self.expiring, self.capacity, slot)
        self.counts.clock += 1
        leaf_place(self, slot, k, priority, self.counts.clock)

    cdef void release(self, int32_t slot) noexcept nogil:
        if self.ends_ns[slot] != 0:
            list_unlink(self.expiring, slot)
            self.ends_ns[slot] = 0

    cdef void expire(self) noexcept nogil:
        cdef int32_t slot = self.expiring[self.capacity].prev
        while slot != self.capacity and self.ends_ns[slot] <= self.view.request.time_ns:
            self.release(slot)
            self.counts.clock += 1
            leaf_rerank(self, slot, DEFAULT_PRIORITY, self.counts.clock)
            slot = self.expiring[self.capacity].prev

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.release(slots[i])
        return LeafPolicy.remove_slots(self, slots, n)

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t i, found
        self.expire()
        found = LeafPolicy.evict_slots(self, n, victims)
        for i in range(found):
            self.release(victims[i])
        return found
