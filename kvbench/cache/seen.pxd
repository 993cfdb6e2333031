from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.table cimport DirectTable

cdef enum:
    NEVER = 0      # this key was never asked for (ABSENT - ABSENT)
    STORED = 1     # it was asked for, and stored then (ABSENT - ABSENT_EVICTED)
    TRUNCATED = 2  # it was asked for, but its request left no room for it


cdef class Seen:
    cdef readonly int64_t distinct

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int note_missing(self, const uint64_t* keys, const int32_t* slots, int64_t start, int64_t stop,
                          uint8_t* states) except -1 nogil
    cdef int set_state(self, uint64_t key, uint8_t state) except -1 nogil
    cdef int set_states(self, const uint64_t* keys, const int32_t* slots, int64_t n, uint8_t state) except -1 nogil


cdef class TableSeen(Seen):
    cdef DirectTable table


cdef class DenseSeen(Seen):
    cdef uint8_t* states
    cdef uint64_t size


cdef struct Bucket:  # one cache line
    uint64_t keys[7]
    uint8_t states[7]
    uint8_t used


cdef struct Part:
    Bucket* buckets
    uint64_t size        # buckets
    uint64_t used        # keys


cdef class ExactSeen(Seen):
    cdef Part parts[64]

    cdef uint8_t* entry(self, uint64_t key, uint64_t hashed) except NULL nogil
    cdef int grow(self, Part* part) except -1 nogil


cpdef Seen make_seen(bint dense, DirectTable table=*)
