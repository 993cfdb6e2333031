"""vLLM's CPU offload, ARC: two lists of blocks, used once and more often, and the ghosts of both.

Source: vLLM 0.33 `v1/kv_offload/cpu/policies/arc.py` (E-42). A stored block enters T1; a request
that finds it moves it to T2, once. A returning ghost moves the target of T1 by max(1, other list /
its list), and becomes its list's youngest until it is stored. Evicts from T1 while it has at least
int(target) blocks, else from T2; blocks of the request at hand are spared (the tier pins them).
Each ghost list holds as many keys as the tier holds blocks. Unlike the ARC of FAST'03 (E-11), a
returning ghost enters T1, and the lists are bounded one by one.

The target moves for all missing blocks of a request, last to first, before any victim is chosen.
Cost: O(1) a block, and some 70 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_evictable, queue_move, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_push_front, list_unlink


cdef struct ArcState:
    double target
    int32_t once          # blocks in T1
    int32_t ahead         # blocks that the target has moved for, and that were not stored yet


@cython.final
cdef class VllmOffloadArc(EvictionPolicy):
    """T1 and T2 are queues 0 and 1."""

    cdef Node* queues
    cdef char* often       # slot -> 1 if in T2
    cdef Ghost gone_once   # B1
    cdef Ghost gone_often  # B2
    cdef ArcState* state

    def __cinit__(self, context):
        self.queues = queues_make(self, self.capacity, 2)
        self.often = <char*>self.allocate(self.capacity, 1)
        ghost_init(&self.gone_once, self, self.capacity)
        ghost_init(&self.gone_often, self, self.capacity)
        self.state = <ArcState*>self.allocate(1, sizeof(ArcState))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.state.once -= 1 - self.often[slots[i]]
            self.often[slots[i]] = 1
            queue_move(self.queues, self.capacity + 1, slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, entry
        cdef uint64_t key
        if self.state.ahead <= 0:
            self.adapt_to_missing(self.view.keys[slots[0]])
        self.state.ahead -= n
        for i in range(n):
            key = self.view.keys[slots[i]]
            entry = ghost_find(&self.gone_once, key)
            if entry != 0:
                ghost_remove(&self.gone_once, entry)
            entry = ghost_find(&self.gone_often, key)
            if entry != 0:
                ghost_remove(&self.gone_often, entry)
            self.often[slots[i]] = 0
            self.state.once += 1
            queue_push(self.queues, self.capacity, slots[i])
        return 0

    cdef void adapt_to_missing(self, uint64_t single) noexcept nogil:
        """Move the target for all missing blocks of the request, or, block by block, for one."""
        cdef int32_t i
        if self.view.slots == NULL:
            self.state.ahead = 1
            self.adapt(single)
            return
        self.state.ahead = 0
        for i in range(self.view.blocks - 1, -1, -1):
            if self.view.slots[i] < 0:
                self.state.ahead += 1
                self.adapt(self.view.asked[i])

    cdef void adapt(self, uint64_t key) noexcept nogil:
        cdef double once = self.gone_once.counts.used
        cdef double often = self.gone_often.counts.used
        cdef int32_t entry = ghost_find(&self.gone_once, key)
        if entry != 0:
            self.state.target = min(self.state.target + max(1.0, often / once), <double>self.capacity)
            list_unlink(self.gone_once.nodes, entry)
            list_push_front(self.gone_once.nodes, entry)
            return
        entry = ghost_find(&self.gone_often, key)
        if entry != 0:
            self.state.target = max(self.state.target - max(1.0, once / often), 0.0)
            list_unlink(self.gone_often.nodes, entry)
            list_push_front(self.gone_often.nodes, entry)

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.queues, slots[i])
            self.state.once -= 1 - self.often[slots[i]]
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t slot, found = 0
        self.adapt_to_missing(self.view.incoming)
        while found < n:
            slot = -1
            if self.state.once >= <int32_t>self.state.target:
                slot = queue_evictable(self.queues, self.capacity, self.view.refs)
            if slot < 0:
                slot = queue_evictable(self.queues, self.capacity + 1, self.view.refs)
            if slot < 0:
                slot = queue_evictable(self.queues, self.capacity, self.view.refs)
            if slot < 0:
                break
            ghost_push(&self.gone_often if self.often[slot] else &self.gone_once, self.view.keys[slot], 0)
            self.remove_slots(&slot, 1)
            victims[found] = slot
            found += 1
        return found
