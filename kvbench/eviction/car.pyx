"""CAR: ARC with two clocks instead of two LRU lists; a hit only sets a bit.

Clock ``T1`` has the blocks used once, ``T2`` those used again; ``B1`` and ``B2`` are the keys
that left them, and move T1's target size as in ARC. The hand of the clock above its target
passes blocks with their bit set on to the young end of T2 and clears the bit.

``edition=paper`` follows the paper: T1, T2, B1 and B2 have at most 2 × capacity keys, and the
target moves by a real number once room is made. ``edition=libcachesim`` counts as version 0.3.5:
whole steps, taken first, and a B2 that is never trimmed. Here it keeps ``history`` × capacity
keys, because a policy's memory is bounded by its capacity.

Source: Bansal, Modha, "CAR: clock with adaptive replacement", FAST 2004. Cost: O(1) amortised;
70 bytes a slot (edition=paper).
"""

cimport cython
from libc.math cimport floor
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_oldest, ghost_push, ghost_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport ghosts_of, queue_evictable, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

from kvbench.errors import ConfigError

cdef enum:
    ONCE = 0
    AGAIN = 1
    NEW = -1
    USED = 2


cdef struct State:
    double target        # of the blocks used once: p
    int64_t sizes[2]
    uint64_t judged_key  # the key whose origin is known already, because room was made for it
    int32_t judged
    int32_t adapted      # its ghost, if any, has moved the target and is gone
    int32_t origin       # NEW, or the clock that its key left


@cython.final
cdef class Car(EvictionPolicy):
    """``marks[slot]`` is the clock of a slot, and USED if it was used since the hand passed."""

    cdef Node* nodes
    cdef uint8_t* marks
    cdef State* state
    cdef Ghost ghosts[2]
    cdef bint of_paper

    def __cinit__(self, context, *, str edition="paper", double history=4.0):
        if history < 1:
            raise ConfigError(f"car: history = {history:g} is below 1, the capacity that B2 remembers at least")
        self.one_by_one = True
        self.of_paper = edition == "paper"
        self.nodes = queues_make(self, self.capacity, 2)
        self.marks = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        # One more than stays: a key that leaves a clock is remembered before another is forgotten.
        ghost_init(&self.ghosts[ONCE], self, self.capacity + 1)
        ghost_init(&self.ghosts[AGAIN], self, self.capacity + 1 if self.of_paper else ghosts_of(self, history))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.marks[slots[i]] |= USED
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.judge(self.view.keys[slots[i]])
            self.adapt()
            self.state.judged = False
            self.put(slots[i], ONCE if self.state.origin == NEW else AGAIN)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        self.judge(self.view.incoming)
        if not self.of_paper:
            self.adapt()
        while found < n:
            victims[found] = self.replace()
            if victims[found] < 0:
                break
            self.trim()
            found += 1
        return found

    cdef void put(self, int32_t slot, int32_t clock) noexcept nogil:
        self.marks[slot] = clock
        self.state.sizes[clock] += 1
        queue_push(self.nodes, self.capacity + clock, slot)

    cdef void forget(self, int32_t slot) noexcept nogil:
        list_unlink(self.nodes, slot)
        self.state.sizes[self.marks[slot] & 1] -= 1

    cdef void judge(self, uint64_t key) noexcept nogil:
        """Find out where a missing key was seen last."""
        cdef State* state = self.state
        if state.judged and state.judged_key == key:
            return
        state.judged = True
        state.judged_key = key
        state.adapted = False
        state.origin = NEW
        if ghost_find(&self.ghosts[ONCE], key) != 0:
            state.origin = ONCE
        elif ghost_find(&self.ghosts[AGAIN], key) != 0:
            state.origin = AGAIN

    cdef void adapt(self) noexcept nogil:
        """Move the target towards the clock whose ghost returns, and forget the ghost."""
        cdef State* state = self.state
        cdef double hit, other, step
        cdef int32_t entry
        if state.adapted or state.origin == NEW:
            return
        state.adapted = True
        hit = self.ghosts[state.origin].counts.used
        other = self.ghosts[1 - state.origin].counts.used
        step = max(1.0, other / hit if self.of_paper else floor(other / hit))
        if state.origin == ONCE:
            state.target = min(state.target + step, <double>self.capacity)
        else:
            state.target = max(state.target - step, 0.0)
        entry = ghost_find(&self.ghosts[state.origin], state.judged_key)
        if entry != 0:
            ghost_remove(&self.ghosts[state.origin], entry)

    cdef int32_t replace(self) noexcept nogil:
        """Turn the clock above its target until it finds a block without its bit."""
        cdef int32_t source, slot
        while True:
            source = ONCE if self.state.sizes[ONCE] >= max(1.0, self.state.target) else AGAIN
            slot = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
            if slot < 0:
                source = 1 - source
                slot = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
                if slot < 0:
                    return -1
            self.forget(slot)
            if not self.marks[slot] & USED:
                ghost_push(&self.ghosts[source], self.view.keys[slot], 0)
                return slot
            self.put(slot, AGAIN)

    cdef void trim(self) noexcept nogil:
        """Keep the ghosts within what the edition allows, now that a block has gone."""
        cdef Ghost* once = &self.ghosts[ONCE]
        cdef Ghost* again = &self.ghosts[AGAIN]
        cdef int64_t in_once = self.state.sizes[ONCE] + once.counts.used
        if self.of_paper and self.state.origin != NEW:
            return
        if in_once >= self.capacity and once.counts.used > 0:
            ghost_remove(once, ghost_oldest(once))
        elif (
            self.of_paper
            and again.counts.used > 0
            and in_once + self.state.sizes[AGAIN] + again.counts.used >= 2 * <int64_t>self.capacity
        ):
            ghost_remove(again, ghost_oldest(again))
