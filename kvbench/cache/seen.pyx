"""The set of keys ever asked for: what tells a first use from an eviction.

It is the one structure of a replay that grows with the number of distinct blocks: nothing or a
byte a block where ids are dense, 12 to 16 bytes otherwise. It is looked at only for blocks that
miss.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kvbench.cache.table cimport ABSENT, DirectTable, dense_size
from kvbench.hashing cimport mix64, scale64
from kvbench.memory cimport no_memory
from kvbench.prefetch cimport prefetch

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void** memory, size_t alignment, size_t size)

cdef enum:
    PARTS = 64       # parts grow one at a time, so growing never holds the whole set twice
    FIRST_BUCKETS = 8
    BUCKET_KEYS = 7
    AHEAD = 8


cdef class Seen:
    """Interface: the last state of each key ever asked for (NEVER, STORED or TRUNCATED)."""

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for these keys; called once for each batch."""
        return 0

    cdef int note_missing(self, const uint64_t* keys, const int32_t* slots, int64_t start, int64_t stop,
                          uint8_t* states) except -1 nogil:
        """For each i in start … stop-1 with ``slots[i]`` < 0: write the state of ``keys[i]`` to
        ``states[i]`` and set it to STORED."""
        return 0

    cdef int set_state(self, uint64_t key, uint8_t state) except -1 nogil:
        """Set the state of a key that was noted before."""
        return 0

    cdef int set_states(self, const uint64_t* keys, const int32_t* slots, int64_t n, uint8_t state) except -1 nogil:
        """``set_state`` for the keys of ``n`` slots."""
        cdef int64_t i
        for i in range(n):
            self.set_state(keys[slots[i]], state)
        return 0

    @property
    def nbytes(self):
        """Memory that the set takes, in bytes."""
        return 0


@cython.final
cdef class TableSeen(Seen):
    """The direct table of the only tier: its entries say what became of each id, and the lookup
    has just read them. Costs no memory and no memory access of its own (a sixth of the time of
    a replay of one-block requests)."""

    def __cinit__(self, DirectTable table):
        self.table = table

    cdef int note_missing(self, const uint64_t* keys, const int32_t* slots, int64_t start, int64_t stop,
                          uint8_t* states) except -1 nogil:
        cdef int64_t i
        for i in range(start, stop):
            if slots[i] < 0:
                states[i] = <uint8_t>(ABSENT - slots[i])
                self.distinct += states[i] == NEVER
        return 0

    cdef int set_state(self, uint64_t key, uint8_t state) except -1 nogil:
        self.table.slots[key] = ABSENT - state
        return 0


@cython.final
cdef class DenseSeen(Seen):
    """One byte for each dense id."""

    def __cinit__(self):
        self.states = NULL
        self.size = 0

    def __dealloc__(self):
        free(self.states)

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        cdef uint64_t size = dense_size(keys, n, self.size)
        cdef uint8_t* states
        if size == self.size:
            return 0
        states = <uint8_t*>realloc(self.states, size)
        if states == NULL:
            no_memory("seen set of dense ids", size)
        memset(states + self.size, NEVER, size - self.size)
        self.states = states
        self.size = size
        return 0

    cdef int note_missing(self, const uint64_t* keys, const int32_t* slots, int64_t start, int64_t stop,
                          uint8_t* states) except -1 nogil:
        cdef int64_t i
        for i in range(start, stop):
            if slots[i] < 0:
                states[i] = self.states[keys[i]]
                self.states[keys[i]] = STORED
                self.distinct += states[i] == NEVER
        return 0

    cdef int set_state(self, uint64_t key, uint8_t state) except -1 nogil:
        self.states[key] = state
        return 0

    cdef int set_states(self, const uint64_t* keys, const int32_t* slots, int64_t n, uint8_t state) except -1 nogil:
        # Nobody waits for a store, so these need no prefetch.
        cdef int64_t i
        for i in range(n):
            self.states[keys[slots[i]]] = state
        return 0

    @property
    def nbytes(self):
        return self.size


cdef inline Bucket* home_of(Part* parts, uint64_t hashed) noexcept nogil:
    cdef Part* part = &parts[hashed % PARTS]
    return &part.buckets[scale64(hashed, part.size)]


cdef inline uint8_t* slot_of(Part* part, Bucket* bucket, uint64_t key) noexcept nogil:
    # The state byte of a key, which is added as NEVER if it is new. There is always room.
    cdef int i
    while True:
        for i in range(bucket.used):
            if bucket.keys[i] == key:
                return &bucket.states[i]
        if bucket.used < BUCKET_KEYS:
            i = bucket.used
            bucket.keys[i] = key
            bucket.states[i] = NEVER
            bucket.used += 1
            part.used += 1
            return &bucket.states[i]
        bucket += 1
        if bucket == part.buckets + part.size:
            bucket = part.buckets


@cython.final
cdef class ExactSeen(Seen):
    """Any 64-bit keys, in buckets of one cache line: seven keys, their states and a count.

    A part grows by 1.38× when it is 80 % full (sizes need not be powers of two: a hash is scaled
    to the size), so the set takes 11.5 to 15.9 bytes a key.
    """

    def __cinit__(self):
        cdef int i
        for i in range(PARTS):
            # Sizes differ from part to part, so that they do not all grow at the same moment.
            self.parts[i].size = FIRST_BUCKETS + i
            self.parts[i].used = 0
            self.parts[i].buckets = new_buckets(FIRST_BUCKETS + i)

    def __dealloc__(self):
        cdef int i
        for i in range(PARTS):
            free(self.parts[i].buckets)

    cdef uint8_t* entry(self, uint64_t key, uint64_t hashed) except NULL nogil:
        """The state byte of ``key``, which is added as NEVER if it is new."""
        cdef Part* part = &self.parts[hashed % PARTS]
        if (part.used + 1) * 5 > part.size * (4 * BUCKET_KEYS):
            self.grow(part)
        return slot_of(part, home_of(self.parts, hashed), key)

    cdef int note_missing(self, const uint64_t* keys, const int32_t* slots, int64_t start, int64_t stop,
                          uint8_t* states) except -1 nogil:
        cdef int64_t i
        cdef uint8_t* state
        for i in range(start, stop):
            if i + AHEAD < stop:
                prefetch(home_of(self.parts, mix64(keys[i + AHEAD])))
            if slots[i] < 0:
                state = self.entry(keys[i], mix64(keys[i]))
                states[i] = state[0]
                state[0] = STORED
                self.distinct += states[i] == NEVER
        return 0

    cdef int set_state(self, uint64_t key, uint8_t state) except -1 nogil:
        self.entry(key, mix64(key))[0] = state
        return 0

    cdef int set_states(self, const uint64_t* keys, const int32_t* slots, int64_t n, uint8_t state) except -1 nogil:
        cdef int64_t i
        for i in range(n):
            if i + AHEAD < n:
                prefetch(home_of(self.parts, mix64(keys[slots[i + AHEAD]])))
            self.entry(keys[slots[i]], mix64(keys[slots[i]]))[0] = state
        return 0

    @property
    def nbytes(self):
        return sum([self.parts[i].size * sizeof(Bucket) for i in range(PARTS)])

    cdef int grow(self, Part* part) except -1 nogil:
        cdef Part larger
        cdef Bucket* bucket
        cdef uint64_t at
        cdef int i
        larger.size = part.size + part.size * 3 // 8
        larger.used = 0
        larger.buckets = new_buckets(larger.size)
        for at in range(part.size):
            bucket = &part.buckets[at]
            for i in range(bucket.used):
                slot_of(&larger, &larger.buckets[scale64(mix64(bucket.keys[i]), larger.size)], bucket.keys[i])[0] = (
                    bucket.states[i]
                )
        free(part.buckets)
        part[0] = larger
        return 0


cdef Bucket* new_buckets(uint64_t size) except NULL nogil:
    cdef void* buckets = NULL
    # Aligned, so that a bucket is one cache line and not the halves of two.
    if posix_memalign(&buckets, sizeof(Bucket), size * sizeof(Bucket)) != 0:
        no_memory("seen set", size)
    memset(buckets, 0, size * sizeof(Bucket))
    return <Bucket*>buckets


cpdef Seen make_seen(bint dense, DirectTable table=None):
    """The cheapest exact set: :class:`TableSeen` where one tier's direct table sees every key,
    :class:`DenseSeen` for dense keys, else :class:`ExactSeen`."""
    if table is not None:
        return TableSeen(table)
    return DenseSeen() if dense else ExactSeen()
