"""LMCache's server, ARC: two lists of blocks, used once and more often, and the ghosts of both.

Source: LMCache 0.5.6 `v1/distributed/eviction_policy` (E-64). A stored block enters T1, a use moves
it to T2. A ghost that returns enters T1, too, and is forgotten; it moves the target of T1 by max(1,
other ghosts / its ghosts), up if it left T1, down if it left T2. Evicts from T1 while it has at least
int(target) blocks, else from T2. LMCache tells its policy no capacity: the most blocks held so far
stand for it, and bound the target, T1 with its ghosts, and, twice over, all four lists.

LMCache evicts batches in the background, at a watermark. A tier that makes room at allocation
evicts before the new blocks move the target.

Cost: O(1) a block, and 87 bytes a slot, nearly all of it ghosts.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_oldest, ghost_push, ghost_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport ghosts_of, queue_move, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

cdef enum:
    ONCE = 0
    OFTEN = 1


cdef struct ArcState:
    double target
    int64_t sizes[2]  # blocks in T1 and T2
    int64_t most      # that both have had


@cython.final
cdef class LmcacheMpArc(EvictionPolicy):
    """T1 and T2 are queues ONCE and OFTEN, B1 and B2 the ghosts of the same numbers."""

    cdef Node* queues
    cdef uint8_t* where  # slot -> ONCE or OFTEN
    cdef Ghost[2] gone
    cdef ArcState* state

    def __cinit__(self, context):
        self.queues = queues_make(self, self.capacity, 2)
        self.where = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        ghost_init(&self.gone[ONCE], self, self.capacity)
        ghost_init(&self.gone[OFTEN], self, ghosts_of(self, 2.0))
        self.state = <ArcState*>self.allocate(1, sizeof(ArcState))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.state.sizes[self.where[slots[i]]] -= 1
            self.state.sizes[OFTEN] += 1
            self.where[slots[i]] = OFTEN
            queue_move(self.queues, self.capacity + OFTEN, slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef ArcState* state = self.state
        cdef int32_t i
        for i in range(n):
            self.adapt(self.view.keys[slots[i]])
            self.where[slots[i]] = ONCE
            state.sizes[ONCE] += 1
            queue_push(self.queues, self.capacity + ONCE, slots[i])
            state.most = max(state.most, state.sizes[ONCE] + state.sizes[OFTEN])
            self.trim()
        return 0

    cdef void adapt(self, uint64_t key) noexcept nogil:
        """Move the target for a key that returns."""
        cdef ArcState* state = self.state
        cdef double once = self.gone[ONCE].counts.used
        cdef double often = self.gone[OFTEN].counts.used
        cdef int32_t entry = ghost_find(&self.gone[ONCE], key)
        if entry != 0:
            state.target = min(state.target + max(1.0, often / once), <double>state.most)
            ghost_remove(&self.gone[ONCE], entry)
            return
        entry = ghost_find(&self.gone[OFTEN], key)
        if entry != 0:
            state.target = max(state.target - max(1.0, once / often), 0.0)
            ghost_remove(&self.gone[OFTEN], entry)

    cdef void trim(self) noexcept nogil:
        """Forget the oldest ghosts. Only a stored block can make this necessary: an evicted one becomes
        a ghost beside its own list. LMCache takes from B1 when B2 is empty, but then all four fit."""
        cdef ArcState* state = self.state
        cdef Ghost* once = &self.gone[ONCE]
        cdef Ghost* often = &self.gone[OFTEN]
        while state.sizes[ONCE] + once.counts.used > state.most:
            ghost_remove(once, ghost_oldest(once))
        while state.sizes[ONCE] + state.sizes[OFTEN] + once.counts.used + often.counts.used > 2 * state.most:
            ghost_remove(often, ghost_oldest(often))

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef void forget(self, int32_t slot) noexcept nogil:
        list_unlink(self.queues, slot)
        self.state.sizes[self.where[slot]] -= 1

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t once = self.queues[self.capacity + ONCE].prev
        cdef int32_t often = self.queues[self.capacity + OFTEN].prev
        cdef int32_t slot, found = 0
        while found < n:
            slot = -1
            if self.state.sizes[ONCE] >= <int64_t>self.state.target:
                slot = self.evict_from(ONCE, &once)
            if slot < 0:
                slot = self.evict_from(OFTEN, &often)
            if slot < 0:
                slot = self.evict_from(ONCE, &once)
            if slot < 0:
                break
            victims[found] = slot
            found += 1
        return found

    cdef int32_t evict_from(self, int32_t queue, int32_t* at) noexcept nogil:
        """Make a ghost of the next evictable slot, from ``at`` towards the front, or return -1."""
        cdef int32_t slot
        while at[0] != self.capacity + queue:
            slot = at[0]
            at[0] = self.queues[slot].prev
            if self.view.refs[slot] == 1:
                self.forget(slot)
                ghost_push(&self.gone[queue], self.view.keys[slot], 0)
                return slot
        return -1
