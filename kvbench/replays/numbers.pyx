"""Numbers keys in first-seen order, for a curve over keys that are not dense."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from kvbench.cache.table cimport ABSENT
from kvbench.hashing cimport mix64
from kvbench.memory cimport no_memory
from kvbench.prefetch cimport prefetch

cdef enum:
    MOST_BLOCKS = 0x7fffffff
    AHEAD = 16


@cython.final
cdef class Numbering:
    """Numbers keys 0, 1, 2, … in first-seen order. A block's successor in the request is most often
    the next number, which is tried before the hash table is asked.

    The table is like :class:`kvbench.cache.table.HashTable` and forgets nothing; it is one with the
    loop over keys, so that a lookup that finds none inserts where it ended, and several are under way at once.
    """

    def __cinit__(self):
        self.bits = 10
        self.entries = <uint64_t*>calloc(1 << self.bits, sizeof(uint64_t))
        if self.entries == NULL:
            no_memory("numbers of keys", 1 << self.bits)

    def __dealloc__(self):
        free(self.entries)
        free(self.keys)

    cdef int number(self, const uint64_t* keys, int64_t n, int32_t* ids) except -1 nogil:
        """Write the number of each key to ``ids``."""
        cdef int64_t i
        cdef int32_t next = 0
        self.fit(n)
        for i in range(n):
            if next >= self.used or self.keys[next] != keys[i]:
                if i + AHEAD < n:
                    # Guesses fail in rows, where blocks are new or requests short.
                    prefetch(&self.entries[mix64(keys[i + AHEAD]) >> (64 - self.bits)])
                    prefetch(self.keys + <uint32_t>self.entries[mix64(keys[i + AHEAD // 2]) >> (64 - self.bits)] - 1)
                next = self.number_of(keys[i])
            ids[i] = next
            next += 1
        return 0

    cdef int32_t number_of(self, uint64_t key) noexcept nogil:
        cdef uint64_t at
        cdef int32_t number = self.look_up(key, &at)
        if number == ABSENT:
            number = <int32_t>self.used
            self.keys[number] = key
            self.entries[at] = mix64(key) >> 32 << 32 | <uint32_t>(number + 1)
            self.used += 1
        return number

    cdef int32_t look_up(self, uint64_t key, uint64_t* at) noexcept nogil:
        """The number of a key, or ABSENT, and the entry where the search ended."""
        cdef uint64_t hashed = mix64(key) >> 32
        cdef uint64_t mask = (<uint64_t>1 << self.bits) - 1
        cdef uint64_t entry
        at[0] = hashed >> (32 - self.bits)
        while True:
            entry = self.entries[at[0]]
            if entry == 0:
                return ABSENT
            if entry >> 32 == hashed and self.keys[<uint32_t>entry - 1] == key:
                return <int32_t>(<uint32_t>entry - 1)
            at[0] = (at[0] + 1) & mask

    cdef bint knows(self, uint64_t key) noexcept nogil:
        cdef uint64_t at
        return self.look_up(key, &at) != ABSENT

    cdef int64_t find(self, const uint64_t* keys, int64_t n, int32_t* ids) noexcept nogil:
        """Write the numbers of those keys that have one, in order, and return how many have."""
        cdef int64_t i, found = 0
        cdef int32_t number
        cdef uint64_t at
        for i in range(n):
            number = self.look_up(keys[i], &at)
            if number != ABSENT:
                ids[found] = number
                found += 1
        return found

    cdef int fit(self, int64_t more) except -1 nogil:
        """Make room for ``more`` keys."""
        cdef int64_t room = 2 * (self.used + more)
        cdef uint64_t* keys
        if self.used + more > MOST_BLOCKS:
            no_memory("numbers of keys", self.used + more)
        if self.used + more > self.room:
            keys = <uint64_t*>realloc(self.keys, room * sizeof(uint64_t))
            if keys == NULL:
                no_memory("numbers of keys", room)
            self.keys = keys
            self.room = room
        while room > <int64_t>1 << self.bits:
            self.grow()
        return 0

    cdef int grow(self) except -1 nogil:
        """Twice the entries. The hash bits in an entry tell its place, so no key is read."""
        cdef int64_t size = <int64_t>1 << self.bits
        cdef uint64_t mask = 2 * size - 1
        cdef uint64_t* entries = <uint64_t*>calloc(2 * size, sizeof(uint64_t))
        cdef uint64_t at
        cdef int64_t i
        if entries == NULL:
            no_memory("numbers of keys", 2 * size)
        self.bits += 1
        for i in range(size):
            if self.entries[i]:
                at = (self.entries[i] >> 32) >> (32 - self.bits)
                while entries[at]:
                    at = (at + 1) & mask
                entries[at] = self.entries[i]
        free(self.entries)
        self.entries = entries
        return 0
