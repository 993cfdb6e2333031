"""QDLP, quick demotion and lazy promotion: a small FIFO (10 %) in front of a CLOCK.

New blocks enter the small FIFO. One that was used there moves on to the main queue when it is the
oldest, others go and their keys are remembered (90 %); a key that returns enters the main queue
at once. The main queue, when it exceeds its share, makes room for itself, even if the tier is not
full: its oldest block goes unless it was used, else it gets another round a use, up to three.

Source: Yang et al., "FIFO can be better than LRU: the power of lazy promotion and quick demotion",
HotOS 2023, as libCacheSim 0.3.5 does it (``QDLP`` with a clock of two bits). Cost: O(1) amortised,
one byte written on a hit; 37 bytes a slot, most of it ghosts.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.onevictim cimport OneVictimPolicy
from kvbench.eviction.queues cimport ghosts_of, queue_evictable, queue_push, queues_make, share_of
from kvbench.eviction.slotlist cimport Node, list_unlink

cdef enum:
    SMALL = 0
    MAIN = 1
    MOST_USES = 3


cdef struct State:
    int32_t sizes[2]
    int32_t leaving      # slot + 1 that the main queue gave up and the tier still holds; 0: none
    int32_t judged
    uint64_t judged_key  # the key whose queue is known already, because room was made for it
    int32_t into


@cython.final
cdef class Qdlp(OneVictimPolicy):
    """``uses[slot]`` is twice the number of uses, plus one in the main queue."""

    cdef Node* nodes
    cdef uint8_t* uses
    cdef State* state
    cdef Ghost ghost
    cdef int32_t main_share

    def __cinit__(self, context, *, double small=0.10, double ghost=0.90):
        self.one_by_one = self.drops = True
        self.main_share = self.capacity - share_of(self.capacity, small)
        self.nodes = queues_make(self, self.capacity, 2)
        self.uses = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        ghost_init(&self.ghost, self, ghosts_of(self, ghost))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.uses[slots[i]] < 2 * MOST_USES:
                self.uses[slots[i]] += 2
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, into
        for i in range(n):
            into = self.judge(self.view.keys[slots[i]])
            self.state.judged = False
            if into == MAIN and self.state.sizes[MAIN] >= self.main_share:
                self.state.leaving = self.evict_main() + 1
            self.push(slots[i], into)
        return 0

    cdef int32_t judge(self, uint64_t key) noexcept nogil:
        """The queue of a missing key: a ghost that returns goes straight to the main queue."""
        cdef int32_t entry
        if not self.state.judged or self.state.judged_key != key:
            entry = ghost_find(&self.ghost, key)
            if entry != 0:
                ghost_remove(&self.ghost, entry)
            self.state.judged = True
            self.state.judged_key = key
            self.state.into = SMALL if entry == 0 else MAIN
        return self.state.into

    cdef int32_t drop_slot(self) except -2 nogil:
        cdef int32_t slot = self.state.leaving - 1
        self.state.leaving = 0
        return slot

    cdef void expect_incoming(self) noexcept nogil:
        self.judge(self.view.incoming)

    cdef int32_t evict_one(self) noexcept nogil:
        """The oldest of the small queue that was not used; or what goes from the main one, to make
        room there for a block that moves on, or for want of others."""
        cdef int32_t slot, victim
        while True:
            slot = queue_evictable(self.nodes, self.capacity + SMALL, self.view.refs)
            if slot < 0:
                return self.evict_main()
            self.forget(slot)
            if self.uses[slot] >> 1 == 0:
                ghost_push(&self.ghost, self.view.keys[slot], 0)
                return slot
            victim = self.evict_main() if self.state.sizes[MAIN] >= self.main_share else -1
            self.push(slot, MAIN)
            if victim >= 0:
                return victim

    cdef int32_t evict_main(self) noexcept nogil:
        cdef int32_t slot
        while True:
            slot = queue_evictable(self.nodes, self.capacity + MAIN, self.view.refs)
            if slot < 0:
                return -1
            if self.uses[slot] >> 1 == 0:
                self.forget(slot)
                return slot
            self.uses[slot] -= 2
            list_unlink(self.nodes, slot)
            queue_push(self.nodes, self.capacity + MAIN, slot)

    cdef void push(self, int32_t slot, int32_t queue) noexcept nogil:
        self.uses[slot] = queue
        self.state.sizes[queue] += 1
        queue_push(self.nodes, self.capacity + queue, slot)

    cdef void forget(self, int32_t slot) noexcept nogil:
        self.state.sizes[self.uses[slot] & 1] -= 1
        list_unlink(self.nodes, slot)
