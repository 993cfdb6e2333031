"""S3-FIFO: most blocks are used once, so a small queue lets go of them early.

New blocks enter a small FIFO (10 %). Those used there at least ``threshold`` times move on to
the main FIFO, the others go and their keys are remembered (90 %); a key that returns enters the
main queue at once. Blocks of the main queue get up to three more rounds, one a use.

``edition=current`` has the warm-up rule of libCacheSim 0.3.5: until the first eviction a block
that finds the small queue full enters the main queue. ``edition=v0`` lets the small queue grow.

Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, as
libCacheSim 0.3.5 counts it (``S3FIFO``, ``s3fifov0``). Cost: O(1) amortised, one byte written on
a hit; 37 bytes a slot, most of it ghosts.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.onevictim cimport OneVictimPolicy
from kvbench.eviction.queues cimport Mark, ghosts_of, queue_push, queue_search, queues_make, share_of
from kvbench.eviction.slotlist cimport Node, list_unlink

from kvbench.errors import ConfigError

cdef enum:
    SMALL = 0
    MAIN = 1
    MOST_USES = 127
    ROUNDS = 3  # a block of the main queue is spared for at most so many uses


cdef struct State:
    int32_t sizes[2]
    int32_t warm         # something was evicted
    int32_t judged
    uint64_t judged_key  # the key whose queue is known already, because room was made for it
    int32_t into


@cython.final
cdef class S3Fifo(OneVictimPolicy):
    """``uses[slot]`` is twice the number of uses, plus one in the main queue."""

    cdef Node* nodes
    cdef uint8_t* uses
    cdef State* state
    cdef Ghost ghost
    cdef Mark oldest[2]
    cdef int32_t small_share
    cdef int32_t main_share
    cdef int32_t threshold
    cdef bint fills_main

    def __cinit__(self, context, *, double small=0.10, double ghost=0.90, int threshold=2, str edition="current"):
        if not 0 < small < 1:
            raise ConfigError(f"s3-fifo: small = {small:g} is not between 0 and 1")
        if not 1 <= threshold <= MOST_USES:
            raise ConfigError(f"s3-fifo: threshold = {threshold} is not between 1 and {MOST_USES}")
        self.one_by_one = True
        self.small_share = share_of(self.capacity, small)
        self.main_share = self.capacity - self.small_share
        self.threshold = threshold
        self.fills_main = edition == "current"
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
            if self.fills_main and not self.state.warm and self.state.sizes[SMALL] >= self.small_share:
                into = MAIN
            self.push(slots[i], into, 0)
        return 0

    cdef void expect_incoming(self) noexcept nogil:
        self.judge(self.view.incoming)
        self.state.warm = True

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

    cdef void push(self, int32_t slot, int32_t queue, int32_t uses) noexcept nogil:
        self.uses[slot] = 2 * uses + queue
        self.state.sizes[queue] += 1
        queue_push(self.nodes, self.capacity + queue, slot)

    cdef void forget(self, int32_t slot) noexcept nogil:
        self.state.sizes[self.uses[slot] & 1] -= 1
        list_unlink(self.nodes, slot)

    cdef int32_t evict_one(self) noexcept nogil:
        cdef int32_t victim = -1
        if self.state.sizes[MAIN] <= self.main_share:
            victim = self.evict_small()
        if victim < 0:
            victim = self.evict_main()
        # All of the main queue may be pinned while the small one has what may go.
        return self.evict_small() if victim < 0 else victim

    cdef int32_t evict_small(self) noexcept nogil:
        """Pass on what was used, until something was not; -1 if all that may go was passed on."""
        cdef int32_t slot
        while True:
            slot = queue_search(self.nodes, self.capacity + SMALL, self.view, &self.oldest[SMALL])
            if slot < 0:
                return -1
            self.forget(slot)
            if self.uses[slot] >> 1 < self.threshold:
                ghost_push(&self.ghost, self.view.keys[slot], 0)
                return slot
            self.push(slot, MAIN, 0)

    cdef int32_t evict_main(self) noexcept nogil:
        cdef int32_t slot, uses
        while True:
            slot = queue_search(self.nodes, self.capacity + MAIN, self.view, &self.oldest[MAIN])
            if slot < 0:
                return -1
            self.forget(slot)
            uses = self.uses[slot] >> 1
            if uses == 0:
                return slot
            self.push(slot, MAIN, min(uses, ROUNDS) - 1)
