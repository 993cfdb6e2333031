from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport EventLog
from kvbench.cache.table cimport BlockTable


cdef class KvbmIndex:
    cdef readonly int32_t workers
    cdef readonly int32_t tiers
    cdef int32_t words                # 64-bit words of a set of workers
    cdef int32_t width                # words of an entry: a set for each tier
    cdef int32_t* ranks               # tier -> ranks with stores of their own
    cdef int32_t* group               # tier -> workers that share one of its stores
    cdef BlockTable table
    cdef uint64_t* keys
    cdef uint64_t* holders            # entry -> for each tier the workers that reach a copy there
    cdef uint64_t* candidates         # scratch of one scoring pass
    cdef int32_t* free_entries
    cdef int32_t size, fresh, free_count
    cdef readonly int32_t held        # keys that at least one worker holds

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int apply(self, EventLog log, int64_t start) except -1 nogil
    cdef int32_t score(self, const uint64_t* keys, int32_t n, int32_t* overlap) noexcept nogil
    cdef void score_tiers(self, const uint64_t* keys, int32_t n, const int32_t* overlap,
                          int32_t* tier_overlap) noexcept nogil
    cdef void count_held(self, const uint64_t* keys, int32_t n, int32_t* held) noexcept nogil
    cdef bint held_elsewhere(self, uint64_t key, int32_t worker) noexcept nogil
    cdef int add(self, uint64_t key, int32_t tier, int32_t store) except -1 nogil
    cdef int drop(self, uint64_t key, int32_t tier, int32_t store) except -1 nogil
    cdef uint64_t held_in(self, int32_t entry, int32_t word) noexcept nogil
    cdef void mark(self, int32_t entry, int32_t tier, int32_t store, bint held) noexcept nogil
    cdef int clear_store(self, int32_t tier, int32_t store) except -1 nogil
    cdef int grow(self) except -1 nogil
