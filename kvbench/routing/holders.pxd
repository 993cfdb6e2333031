from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.events cimport Event, EventLog
from kvbench.cache.table cimport BlockTable
from kvbench.routing.copycounts cimport CopyCounts


cdef class Holders:
    cdef readonly int32_t workers
    cdef readonly int32_t tiers
    cdef readonly bint counts_copies
    cdef int32_t levels               # tiers, and one more for what is only predicted
    cdef int32_t words                # 64-bit words of a set of workers
    cdef int32_t width                # words of an entry: a set for each level
    cdef int32_t* ranks               # level -> ranks with stores of their own
    cdef int32_t* group               # level -> workers that share one of its stores
    cdef BlockTable table
    cdef uint64_t* keys
    cdef uint64_t* parents            # entry -> key of the block before
    cdef uint8_t* has_parent
    cdef uint64_t* holders            # entry -> for each level the workers that reach a copy there
    cdef int32_t* free_entries
    cdef int32_t size, fresh, free_count
    cdef readonly int32_t held        # keys that at least one worker holds
    cdef readonly int64_t unmatched   # deletions of what was not held
    cdef CopyCounts extras

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int apply(self, EventLog log, int64_t start) except -1 nogil
    cdef int take(self, const Event* event) except -1 nogil
    cdef int add(self, uint64_t key, int32_t level, int32_t store, uint64_t parent, bint has_parent) except -1 nogil
    cdef int32_t new_entry(self, uint64_t key) except -1 nogil
    cdef int drop(self, uint64_t key, int32_t level, int32_t store) except -1 nogil
    cdef int drop_entry(self, int32_t entry, int32_t level, int32_t store) except -1 nogil
    cdef int clear_store(self, int32_t level, int32_t store) except -1 nogil
    cdef int clear_worker(self, int32_t worker) except -1 nogil
    cdef bint is_counted(self, int32_t level) noexcept nogil
    cdef bint holds(self, int32_t entry, int32_t level, int32_t store) noexcept nogil
    cdef void mark(self, int32_t entry, int32_t level, int32_t store, bint held) noexcept nogil
    cdef uint64_t held_in(self, int32_t entry, int32_t word) noexcept nogil
    cdef int grow(self) except -1 nogil
