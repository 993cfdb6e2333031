"""Clock2Q+: S3-FIFO whose small queue does not count uses that follow the storing at once.

Blocks of one request, or of a burst, are used again soon after they were stored and then no more.
So a use in the small FIFO (10 %) counts only if ``window`` times that queue's share of blocks has
been stored in it since. A block with one such use moves on to the main queue, a CLOCK of one bit;
the others go and their keys are remembered (90 %), and a key that returns enters the main queue at
once. Until the first eviction a block that finds the small queue full enters the main queue.

Source: libCacheSim 0.3.5 (``Clock2QPlus``). Cost: O(1) amortised, O(1) a hit; 45 bytes a slot,
most of it ghosts.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.onevictim cimport OneVictimPolicy
from kvbench.eviction.queues cimport Mark, ghosts_of, queue_push, queue_search, queues_make, share_of
from kvbench.eviction.slotlist cimport Node, list_unlink

from kvbench.errors import ConfigError

cdef enum:
    SMALL = 0
    MAIN = 1


cdef struct State:
    int32_t sizes[2]
    int32_t warm         # something was evicted
    int32_t judged
    uint64_t judged_key  # the key whose queue is known already, because room was made for it
    int32_t into
    int64_t stored       # blocks stored in the small queue so far


@cython.final
cdef class Clock2QPlus(OneVictimPolicy):
    """Beside each slot: which queue it is in, whether it was used, and when it was stored."""

    cdef Node* nodes
    cdef uint8_t* queue_of
    cdef uint8_t* used
    cdef int64_t* stored
    cdef State* state
    cdef Ghost ghost
    cdef Mark oldest[2]
    cdef int32_t small_share
    cdef int32_t main_share
    cdef double window

    def __cinit__(self, context, *, double small=0.10, double ghost=0.90, double window=0.5):
        if not 0 <= window <= 1:
            raise ConfigError(f"clock2q+: window = {window:g} is not between 0 and 1")
        self.one_by_one = True
        self.small_share = share_of(self.capacity, small)
        self.main_share = self.capacity - self.small_share
        self.window = self.small_share * window
        self.nodes = queues_make(self, self.capacity, 2)
        self.queue_of = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.used = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.stored = <int64_t*>self.allocate(self.capacity, sizeof(int64_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        ghost_init(&self.ghost, self, ghosts_of(self, ghost))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.queue_of[slots[i]] == MAIN or self.state.stored - self.stored[slots[i]] >= self.window:
                self.used[slots[i]] = 1
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, into
        for i in range(n):
            into = self.judge(self.view.keys[slots[i]])
            self.state.judged = False
            if not self.state.warm and self.state.sizes[SMALL] >= self.small_share:
                into = MAIN
            if into == SMALL:
                self.state.stored += 1
                self.stored[slots[i]] = self.state.stored
            self.push(slots[i], into)
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
            if not self.used[slot]:
                ghost_push(&self.ghost, self.view.keys[slot], 0)
                return slot
            self.push(slot, MAIN)

    cdef int32_t evict_main(self) noexcept nogil:
        cdef int32_t slot
        cdef bint used
        while True:
            slot = queue_search(self.nodes, self.capacity + MAIN, self.view, &self.oldest[MAIN])
            if slot < 0:
                return -1
            used = self.used[slot]
            self.forget(slot)
            if not used:
                return slot
            self.push(slot, MAIN)

    cdef void push(self, int32_t slot, int32_t queue) noexcept nogil:
        self.used[slot] = 0
        self.queue_of[slot] = queue
        self.state.sizes[queue] += 1
        queue_push(self.nodes, self.capacity + queue, slot)

    cdef void forget(self, int32_t slot) noexcept nogil:
        self.state.sizes[self.queue_of[slot]] -= 1
        list_unlink(self.nodes, slot)
