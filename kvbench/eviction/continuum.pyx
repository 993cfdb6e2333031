"""Continuum: a session's blocks are kept for a while after a request, if it is likely to return.

After arXiv 2511.02230 (E-86), which pins the cache of a program that waits for a tool, for a time
chosen from how long tools take. Traces do not say who waits, so what a session did last decides:
one whose last pause was at most ``ttl_s`` seconds is kept for ``ttl_s`` after this request, one
that paused longer is not; ``first`` says whether a session's first request counts as promising.
(If all were kept for the same time, times would run out in the order of last uses: plain LRU.)
Blocks that are not kept go first, oldest last use first; then those whose time ends next. A use
by somebody who is not kept does not shorten a block's time. At exactly ``ttl_s`` it has ended.
Remembers one session for each block of capacity. Cost: O(log n) a block; 52 bytes a slot and some
40 a session.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.heap cimport (
    Heap, heap_contains, heap_evict, heap_init, heap_push, heap_remove, heap_update,
)
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink


cdef struct ContinuumState:
    int64_t clock
    int64_t request    # number of the request that `keeps` is about, plus one
    bint keeps


@cython.final
cdef class Continuum(EvictionPolicy):
    """The heap has the blocks that are not kept, the queue those that are."""

    cdef int64_t ttl_ns
    cdef bint first
    cdef Heap heap
    cdef Node* kept          # the next to end at the back
    cdef int64_t* ends_ns    # of a slot in `kept`; -1: the slot is in the heap
    cdef int64_t* used       # slot -> number of its last use
    cdef Ghost sessions
    cdef int64_t* arrivals   # entry of `sessions` -> its last request
    cdef ContinuumState* state

    def __cinit__(self, context, *, double ttl_s=60.0, bint first=True):
        self.ttl_ns = <int64_t>min(ttl_s * 1e9, <double>(INT64_MAX // 2))
        self.first = first
        heap_init(&self.heap, self, self.capacity)
        self.kept = queues_make(self, self.capacity, 1)
        self.ends_ns = <int64_t*>self.allocate(self.capacity, sizeof(int64_t))
        self.used = <int64_t*>self.allocate(self.capacity, sizeof(int64_t))
        ghost_init(&self.sessions, self, self.capacity)
        self.arrivals = <int64_t*>self.allocate(<size_t>self.capacity + 1, sizeof(int64_t))
        self.state = <ContinuumState*>self.allocate(1, sizeof(ContinuumState))

    cdef void judge(self) noexcept nogil:
        """Once a request: will its session be back in time?"""
        cdef uint64_t session
        cdef int32_t entry
        if self.state.request == self.view.request.index + 1 and self.state.clock > 0:
            return
        self.state.request = self.view.request.index + 1
        self.state.keeps = False
        if self.view.request.session < 0:
            return
        session = <uint64_t>self.view.request.session
        entry = ghost_find(&self.sessions, session)
        if entry == 0:
            self.state.keeps = self.first
        else:
            self.state.keeps = self.view.request.time_ns - self.arrivals[entry] <= self.ttl_ns
            ghost_remove(&self.sessions, entry)
        entry = ghost_push(&self.sessions, session, 0)
        self.arrivals[entry] = self.view.request.time_ns

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        self.expire()
        self.judge()
        for i in range(n):
            self.place(slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.ends_ns[slots[i]] = -1
        return self.touch_slots(slots, n)

    cdef void place(self, int32_t slot) noexcept nogil:
        self.state.clock += 1
        self.used[slot] = self.state.clock
        if self.state.keeps and self.ttl_ns > 0:
            self.forget(slot)
            self.ends_ns[slot] = self.view.request.time_ns + self.ttl_ns
            queue_push(self.kept, self.capacity, slot)
        elif self.ends_ns[slot] >= 0:
            return
        elif heap_contains(&self.heap, slot):
            heap_update(&self.heap, slot, self.state.clock, 0)
        else:
            heap_push(&self.heap, slot, self.state.clock, 0)

    cdef void expire(self) noexcept nogil:
        cdef int32_t slot = self.kept[self.capacity].prev
        while slot != self.capacity and self.ends_ns[slot] <= self.view.request.time_ns:
            self.forget(slot)
            heap_push(&self.heap, slot, self.used[slot], 0)
            slot = self.kept[self.capacity].prev

    cdef void forget(self, int32_t slot) noexcept nogil:
        if self.ends_ns[slot] >= 0:
            list_unlink(self.kept, slot)
            self.ends_ns[slot] = -1
        else:
            heap_remove(&self.heap, slot)

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t slot, newer, found
        self.expire()
        found = heap_evict(&self.heap, self.view.refs, n, victims)
        slot = self.kept[self.capacity].prev
        while found < n and slot != self.capacity:
            newer = self.kept[slot].prev
            if self.view.refs[slot] == 1:
                self.forget(slot)
                victims[found] = slot
                found += 1
            slot = newer
        return found
