"""The set of keys ever asked for: what tells a first use from an eviction.

It is the one structure of a replay that grows with the number of distinct blocks: nothing or a
byte a block where ids are dense, 12 to 16 bytes otherwise. It is looked at only for blocks that
miss.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.cache.table cimport ABSENT, DirectTable
from kvbench.hashing cimport mix64, scale64
from kvbench.memory cimport no_memory
from kvbench.prefetch cimport prefetch

cdef enum:
    PARTS = 64       # parts grow one at a time, so growing never holds the whole set twice
    FIRST_SIZE = 64
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
        cdef uint64_t largest = 0
        cdef uint64_t size
        cdef uint8_t* states
        cdef int64_t i
        for i in range(n):
            if keys[i] > largest:
                largest = keys[i]
        if n == 0 or largest < self.size:
            return 0
        size = max(largest + 1, self.size + self.size // 2)
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

    @property
    def nbytes(self):
        return self.size


@cython.final
cdef class ExactSeen(Seen):
    """Open addressing over any 64-bit keys: a key and a state byte an entry, 58 to 80 % full.

    Sizes need not be powers of two (a hash is scaled to the size), so a part grows by 1.38×
    and the set stays below 16 bytes a key at any moment.
    """

    def __cinit__(self):
        cdef int i
        self.zero_state = NEVER
        self.parts = <Part*>calloc(PARTS, sizeof(Part))
        if self.parts == NULL:
            no_memory("seen set", PARTS * FIRST_SIZE)
        for i in range(PARTS):
            # Sizes differ from part to part, so that they do not all grow at the same moment.
            self.parts[i].size = FIRST_SIZE + i
            self.parts[i].keys = <uint64_t*>calloc(FIRST_SIZE + i, sizeof(uint64_t))
            self.parts[i].states = <uint8_t*>calloc(FIRST_SIZE + i, 1)
            if self.parts[i].keys == NULL or self.parts[i].states == NULL:
                no_memory("seen set", PARTS * FIRST_SIZE)

    def __dealloc__(self):
        cdef int i
        if self.parts != NULL:
            for i in range(PARTS):
                free(self.parts[i].keys)
                free(self.parts[i].states)
            free(self.parts)

    cdef uint8_t* entry(self, uint64_t key) except NULL nogil:
        """The state byte of ``key``, which is added as NEVER if it is new."""
        cdef uint64_t hashed = mix64(key)
        cdef Part* part = &self.parts[hashed % PARTS]
        cdef uint64_t at
        if key == 0:
            return &self.zero_state  # 0 marks an empty entry, so key 0 has a place of its own
        if (part.used + 1) * 5 > part.size * 4:
            self.grow(part)
        at = scale64(hashed, part.size)
        while part.keys[at] != key:
            if part.keys[at] == 0:
                part.keys[at] = key
                part.used += 1
                break
            at += 1
            if at == part.size:
                at = 0
        return &part.states[at]

    cdef int note_missing(self, const uint64_t* keys, const int32_t* slots, int64_t start, int64_t stop,
                          uint8_t* states) except -1 nogil:
        cdef int64_t i
        cdef uint64_t hashed
        cdef uint8_t* state
        for i in range(start, stop):
            if i + AHEAD < stop:
                hashed = mix64(keys[i + AHEAD])
                prefetch(&self.parts[hashed % PARTS].keys[scale64(hashed, self.parts[hashed % PARTS].size)])
            if slots[i] < 0:
                state = self.entry(keys[i])
                states[i] = state[0]
                state[0] = STORED
                self.distinct += states[i] == NEVER
        return 0

    cdef int set_state(self, uint64_t key, uint8_t state) except -1 nogil:
        self.entry(key)[0] = state
        return 0

    @property
    def nbytes(self):
        return sum([self.parts[i].size * (sizeof(uint64_t) + 1) for i in range(PARTS)])

    cdef int grow(self, Part* part) except -1 nogil:
        cdef uint64_t size = part.size + part.size * 3 // 8
        cdef uint64_t* keys = <uint64_t*>calloc(size, sizeof(uint64_t))
        cdef uint8_t* states = <uint8_t*>calloc(size, 1)
        cdef uint64_t i, at
        if keys == NULL or states == NULL:
            free(keys)
            free(states)
            no_memory("seen set", size)
        for i in range(part.size):
            if part.keys[i] != 0:
                at = scale64(mix64(part.keys[i]), size)
                while keys[at] != 0:
                    at += 1
                    if at == size:
                        at = 0
                keys[at] = part.keys[i]
                states[at] = part.states[i]
        free(part.keys)
        free(part.states)
        part.keys = keys
        part.states = states
        part.size = size
        return 0


cpdef Seen make_seen(bint dense, DirectTable table=None):
    """The cheapest exact set: :class:`TableSeen` where one tier's direct table sees every key,
    :class:`DenseSeen` for dense keys, else :class:`ExactSeen`."""
    if table is not None:
        return TableSeen(table)
    return DenseSeen() if dense else ExactSeen()
