"""W-TinyLFU: a newcomer gets into the main part if it was asked more often than its victim.

New blocks enter a small LRU window (1 %). What leaves the window is compared with the next
victim of the main part, a segmented LRU (1 : 4), by a sketch of recent use; the one used more
often stays. The sketch is a counting filter whose counters are halved from time to time.

``sketch=libcachesim`` is sized and fed as in version 0.3.5: 14.4 counters a block of the main
part, 10 hashes; it counts hits in the main part, blocks stored, and each block that is about to
leave the window; it is halved every 32 × main part hits there. Its hash function is another one
here, so counts come close to that version's but are not the same. ``sketch=textbook`` is the
usual sizing: 16 counters up to 15 a block, 4 hashes, fed once an access, halved every
10 × capacity accesses.

Source: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM TOS
13 (4), 2017. Cost: O(hashes) a touched, inserted or evicted block; 9 bytes a slot and 29
(libcachesim) or 16 (textbook) of sketch.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport Mark, queue_move, queue_push, queue_search, queues_make, share_of
from kvbench.eviction.segments cimport (
    Segments,
    segment_overflows,
    segments_evictable,
    segments_forget,
    segments_init,
    segments_insert,
    segments_touch,
)
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.hashing cimport mix64, scale64

from kvbench.errors import ConfigError

cdef enum:
    PROBATION = 0
    PROTECTED = 1
    WINDOW = 2
    MOST_HASHES = 10

cdef uint64_t SALT = 0x6a09e667f3bcc908ULL  # so that the sketch and the block table hash apart


cdef struct State:
    int64_t window     # blocks in it
    int64_t additions  # to the sketch, or hits in the main part, since it was halved
    int32_t sank       # a block sank into probation and made it too large


@cython.final
cdef class WTinyLfu(EvictionPolicy):
    """``where`` says in which part a slot is; probation and protected are the segments."""

    cdef Node* nodes
    cdef uint8_t* where
    cdef State* state
    cdef Segments main
    cdef int64_t main_share
    cdef uint16_t* counters
    cdef uint64_t width
    cdef int32_t hashes
    cdef uint16_t most
    cdef int64_t period
    cdef bint textbook
    cdef Mark oldest  # in the window

    def __cinit__(self, context, *, double window=0.01, str sketch="libcachesim"):
        if not 0 < window < 1:
            raise ConfigError(f"w-tinylfu: window = {window:g} is not between 0 and 1")
        self.one_by_one = self.drops = True
        self.main_share = self.capacity - share_of(self.capacity, window)
        self.nodes = queues_make(self, self.capacity, 3)
        self.where = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        segments_init(&self.main, self, self.nodes, self.where, self.capacity, 2)
        self.main.segments[PROBATION].share = <int32_t>(self.main_share * 1.0 / 5)
        self.main.segments[PROTECTED].share = <int32_t>(self.main_share * 4.0 / 5)
        self.textbook = sketch == "textbook"
        self.hashes = 4 if self.textbook else MOST_HASHES
        self.most = 15 if self.textbook else 65535
        self.width = <uint64_t>(16.0 * self.capacity if self.textbook else 14.4 * self.main_share) + 1
        self.period = 10 * <int64_t>self.capacity if self.textbook else 32 * max(1, self.main_share)
        self.counters = <uint16_t*>self.allocate(self.width, sizeof(uint16_t))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.where[slots[i]] == WINDOW:
                queue_move(self.nodes, self.capacity + WINDOW, slots[i])
                if self.textbook:
                    self.count(self.view.keys[slots[i]], True)
                continue
            if segments_touch(&self.main, slots[i]):
                self.state.sank = True
            self.count(self.view.keys[slots[i]], True)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        self.state.sank = False  # what was not asked for after the use is not given up for a newcomer
        for i in range(n):
            self.where[slots[i]] = WINDOW
            self.state.window += 1
            queue_push(self.nodes, self.capacity + WINDOW, slots[i])
            self.count(self.view.keys[slots[i]], self.textbook)
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
            self.forget(victims[found])
            found += 1
        return found

    cdef int32_t drop_slot(self) except -2 nogil:
        cdef int32_t victim = -1
        if self.state.sank and segment_overflows(&self.main, PROBATION):
            victim = segments_evictable(&self.main, self.view)
        if victim < 0:
            self.state.sank = False
        else:
            self.forget(victim)
        return victim

    cdef void forget(self, int32_t slot) noexcept nogil:
        if self.where[slot] == WINDOW:
            self.state.window -= 1
            list_unlink(self.nodes, slot)
        else:
            segments_forget(&self.main, slot)

    cdef int32_t evict_one(self) noexcept nogil:
        """Let the window fill the main part, then choose between the victims of both."""
        cdef int32_t candidate, victim
        while True:
            candidate = queue_search(self.nodes, self.capacity + WINDOW, self.view, &self.oldest)
            if candidate < 0:
                return segments_evictable(&self.main, self.view)
            if not self.textbook:
                self.count(self.view.keys[candidate], False)
            if self.main.segments[PROBATION].size + self.main.segments[PROTECTED].size >= self.main_share:
                break
            self.admit(candidate)
        victim = segments_evictable(&self.main, self.view)
        if victim < 0 or self.estimate(self.view.keys[candidate]) <= self.estimate(self.view.keys[victim]):
            return candidate
        self.admit(candidate)
        return victim

    cdef void admit(self, int32_t slot) noexcept nogil:
        self.forget(slot)
        segments_insert(&self.main, slot)

    # -- the sketch ----------------------------------------------------------------------------

    cdef void count(self, uint64_t key, bint ages) noexcept nogil:
        cdef uint64_t place = mix64(key ^ SALT)
        cdef uint64_t step = mix64(place) | 1
        cdef uint16_t* counter
        cdef uint64_t at
        cdef int32_t i
        for i in range(self.hashes):
            counter = self.counters + scale64(place, self.width)
            if counter[0] < self.most:
                counter[0] += 1
            place += step
        if ages:
            self.state.additions += 1
            if self.state.additions >= self.period:
                self.state.additions = 0
                for at in range(self.width):
                    self.counters[at] >>= 1

    cdef int32_t estimate(self, uint64_t key) noexcept nogil:
        cdef uint64_t place = mix64(key ^ SALT)
        cdef uint64_t step = mix64(place) | 1
        cdef int32_t i, least = self.most
        for i in range(self.hashes):
            least = min(least, <int32_t>self.counters[scale64(place, self.width)])
            place += step
        return least
