from libc.stdint cimport int32_t, uint64_t

from kvbench.routing.holders cimport Holders


cdef class KvbmIndex(Holders):
    cdef uint64_t* candidates         # scratch of one scoring pass
    cdef int32_t* active              # scratch: words that have candidates

    cdef int32_t score(self, const uint64_t* keys, int32_t n, int32_t* overlap) noexcept nogil
    cdef void fetch(self, const int32_t* entries, int32_t n, int32_t active) noexcept nogil
    cdef int32_t narrow(self, int32_t entry, int32_t block, int32_t active, int32_t* overlap) noexcept nogil
    cdef void settle(self, int32_t blocks, int32_t active, int32_t* overlap) noexcept nogil
    cdef void score_tiers(self, const uint64_t* keys, int32_t n, const int32_t* overlap,
                          int32_t* tier_overlap) noexcept nogil
    cdef bint held_elsewhere(self, uint64_t key, int32_t worker) noexcept nogil
