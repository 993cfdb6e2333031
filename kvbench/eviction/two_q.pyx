"""2Q: a block must return after it has left the first queue to get into the lasting one.

New blocks enter ``A1in``, a FIFO that uses do not reorder; the keys that leave it are remembered
in ``A1out``. A key that returns from there enters ``Am``, an LRU list. While A1in is within its
share, the back of Am goes.

Source: Johnson, Shasha, "2Q: a low overhead high performance buffer management replacement
algorithm", VLDB 1994, as libCacheSim 0.3.5 counts it. Cost: O(1) a touched, inserted or evicted
block; 24 bytes a slot with the default A1out.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.onevictim cimport OneVictimPolicy
from kvbench.eviction.queues cimport ghosts_of, queue_evictable, queue_move, queue_push, queues_make, share_of
from kvbench.eviction.slotlist cimport Node, list_unlink

from kvbench.errors import ConfigError

cdef enum:
    FIRST = 0    # A1in
    LASTING = 1  # Am


cdef struct State:
    int32_t sizes[2]
    uint64_t judged_key  # the key whose queue is known already, because room was made for it
    int32_t judged
    int32_t into


@cython.final
cdef class TwoQ(OneVictimPolicy):
    """``where`` says which queue a slot is in. Am never gets above its share in a full cache, so
    neither queue needs a limit of its own."""

    cdef Node* nodes
    cdef uint8_t* where
    cdef State* state
    cdef Ghost ghost
    cdef int32_t share

    def __cinit__(self, context, *, double a1in=0.25, double a1out=0.5):
        if not 0 < a1in < 1:
            raise ConfigError(f"2q: a1in = {a1in:g} is not between 0 and 1")
        self.one_by_one = True
        self.share = share_of(self.capacity, a1in)
        self.nodes = queues_make(self, self.capacity, 2)
        self.where = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        ghost_init(&self.ghost, self, ghosts_of(self, a1out))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.where[slots[i]] == LASTING:
                queue_move(self.nodes, self.capacity + LASTING, slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, into
        for i in range(n):
            into = self.judge(self.view.keys[slots[i]])
            self.state.judged = False
            self.where[slots[i]] = into
            self.state.sizes[into] += 1
            queue_push(self.nodes, self.capacity + into, slots[i])
        return 0

    cdef void expect_incoming(self) noexcept nogil:
        self.judge(self.view.incoming)

    cdef int32_t judge(self, uint64_t key) noexcept nogil:
        """The queue of a missing key: a ghost that returns has earned the lasting one."""
        cdef int32_t entry
        if not self.state.judged or self.state.judged_key != key:
            entry = ghost_find(&self.ghost, key)
            if entry != 0:
                ghost_remove(&self.ghost, entry)
            self.state.judged = True
            self.state.judged_key = key
            self.state.into = FIRST if entry == 0 else LASTING
        return self.state.into

    cdef void forget(self, int32_t slot) noexcept nogil:
        list_unlink(self.nodes, slot)
        self.state.sizes[self.where[slot]] -= 1

    cdef int32_t evict_one(self) noexcept nogil:
        cdef int32_t source = LASTING if self.state.sizes[FIRST] <= self.share else FIRST
        cdef int32_t victim = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
        if victim < 0:
            source = 1 - source
            victim = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
        if victim >= 0:
            self.forget(victim)
            if source == FIRST:
                ghost_push(&self.ghost, self.view.keys[victim], 0)
        return victim
