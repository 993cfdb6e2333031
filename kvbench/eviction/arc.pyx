"""ARC: two LRU lists, of blocks used once and used again; ghosts of both shift the balance.

``T1`` has the blocks used once, ``T2`` those used again, ``B1`` and ``B2`` the keys that left
them. A key that returns from B1 says that T1 was too small and raises its target ``p``, one from
B2 lowers it. Within p the block to go is the back of T2, else that of T1.

Source: Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, as
libCacheSim 0.3.5 counts it (p is real; lists are trimmed only to make room). Cost: O(1) a
touched, inserted or evicted block; 72 bytes a slot, nearly all of it ghosts.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_oldest, ghost_push, ghost_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_evictable, queue_move, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

cdef enum:
    ONCE = 0
    AGAIN = 1
    NEW = -1


cdef struct State:
    double target        # of the blocks used once: p
    int64_t sizes[2]
    uint64_t judged_key  # the key whose origin is known already, because room was made for it
    int32_t judged
    int32_t origin       # NEW, or the list that its key left


@cython.final
cdef class Arc(EvictionPolicy):
    """T1 and T2 are queues ONCE and AGAIN; ``where`` says which one a slot is in."""

    cdef Node* nodes
    cdef uint8_t* where
    cdef State* state
    cdef Ghost ghosts[2]

    def __cinit__(self, context):
        self.one_by_one = True
        self.nodes = queues_make(self, self.capacity, 2)
        self.where = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        ghost_init(&self.ghosts[ONCE], self, self.capacity)
        ghost_init(&self.ghosts[AGAIN], self, self.capacity)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.where[slots[i]] == ONCE:
                self.where[slots[i]] = AGAIN
                self.state.sizes[ONCE] -= 1
                self.state.sizes[AGAIN] += 1
            queue_move(self.nodes, self.capacity + AGAIN, slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, into
        for i in range(n):
            into = ONCE if self.judge(self.view.keys[slots[i]]) == NEW else AGAIN
            self.state.judged = False
            self.where[slots[i]] = into
            self.state.sizes[into] += 1
            queue_push(self.nodes, self.capacity + into, slots[i])
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        while found < n:
            victims[found] = self.evict_one()
            if victims[found] < 0:
                break
            found += 1
        return found

    cdef void forget(self, int32_t slot) noexcept nogil:
        list_unlink(self.nodes, slot)
        self.state.sizes[self.where[slot]] -= 1

    cdef int32_t judge(self, uint64_t key) noexcept nogil:
        """Where a missing key was seen last; a ghost that returns moves the target."""
        cdef State* state = self.state
        cdef double once, again
        cdef int32_t origin, entry = 0
        if state.judged and state.judged_key == key:
            return state.origin
        state.judged = True
        state.judged_key = key
        state.origin = NEW
        for origin in range(2):
            entry = ghost_find(&self.ghosts[origin], key)
            if entry == 0:
                continue
            once, again = self.ghosts[ONCE].counts.used, self.ghosts[AGAIN].counts.used
            if origin == ONCE:
                state.target = min(state.target + max(1.0, again / once), <double>self.capacity)
            else:
                state.target = max(state.target - max(1.0, once / again), 0.0)
            ghost_remove(&self.ghosts[origin], entry)
            state.origin = origin
            break
        return state.origin

    cdef int32_t evict_one(self) noexcept nogil:
        cdef Ghost* once = &self.ghosts[ONCE]
        cdef Ghost* again = &self.ghosts[AGAIN]
        cdef int64_t in_once
        cdef int32_t victim
        if self.judge(self.view.incoming) == NEW:
            in_once = self.state.sizes[ONCE] + once.counts.used
            if in_once >= self.capacity:
                if once.counts.used == 0:
                    victim = queue_evictable(self.nodes, self.capacity + ONCE, self.view.refs)
                    if victim >= 0:
                        self.forget(victim)
                        return victim
                else:
                    ghost_remove(once, ghost_oldest(once))
            elif (
                again.counts.used > 0
                and in_once + self.state.sizes[AGAIN] + again.counts.used >= 2 * <int64_t>self.capacity
            ):
                ghost_remove(again, ghost_oldest(again))
        return self.replace()

    cdef int32_t replace(self) noexcept nogil:
        """The back of the list above its target, remembered in its ghost list."""
        cdef int64_t once = self.state.sizes[ONCE]
        cdef double target = self.state.target
        cdef int32_t source = AGAIN
        cdef int32_t victim
        if once > 0 and (once > target or (once == target and self.state.origin == AGAIN)):
            source = ONCE
        victim = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
        if victim < 0:
            source = 1 - source
            victim = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
        if victim >= 0:
            self.forget(victim)
            ghost_push(&self.ghosts[source], self.view.keys[victim], 0)
        return victim
