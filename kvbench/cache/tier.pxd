from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.victims cimport VictimStore

cdef enum SweepOrder:
    TAIL_FIRST = 0
    HEAD_FIRST = 1
    ACCESS = 2

# What a tier does with a block of a request (`mask`).
cdef enum:
    STORE = 1  # store it if it is missing
    TOUCH = 2  # tell the policy of its use if it is resident


cdef inline bint wants(const uint8_t* mask, int32_t i) noexcept nogil:
    return mask == NULL or mask[i] & STORE


cdef inline bint touches(const uint8_t* mask, int32_t i) noexcept nogil:
    return mask == NULL or mask[i] & TOUCH


cdef class Tier(VictimStore):
    cdef int order
    cdef bint noted        # each stored block goes through `note_stored`
    cdef bint makes_room   # a full tier evicts at allocation
    cdef const uint8_t* mask   # position in the request -> STORE | TOUCH, or NULL: both for all

    # The request being served; `slots` holds what its lookup found, in block order.
    cdef int32_t* slots
    cdef int32_t* sweep
    cdef int64_t scratch
    cdef int32_t resident, stored, truncated
    cdef int32_t fits      # leading blocks for which there was room

    cdef int32_t lookup(self, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil
    cdef int commit(self, const uint64_t* keys, int32_t n) except -1 nogil
    cdef int32_t access(self, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil

    cdef int drop_unwanted(self) except -1 nogil
    cdef int fit_scratch(self, int64_t n) except -1 nogil
    cdef int fill(self, const uint64_t* keys, int32_t n, int32_t missing, int32_t fits) except -1 nogil
    cdef int store_missing(self, const uint64_t* keys, int32_t n, int32_t fits) except -1 nogil
    cdef int note_stored(self, const uint64_t* keys, int32_t i, int32_t slot) except -1 nogil
    cdef int store_one(self, const uint64_t* keys, int32_t i, int32_t step) except -1 nogil
    cdef int32_t leading_fit(self, int32_t n, int32_t missing) noexcept nogil
    cdef int32_t decoded(self, int32_t i) noexcept nogil
    cdef int sweep_one_by_one(self, const uint64_t* keys, int32_t n, int32_t fits) except -1 nogil
    cdef int tell_one(self, int32_t slot, int32_t depth, int32_t step, bint stored) except -1 nogil
    cdef int32_t replace_victim(self, uint64_t key) except? -2 nogil
    cdef int sweep_over(self, int32_t n) except -1 nogil
    cdef int tell(self, const int32_t* run, int32_t n, bint stored) except -1 nogil
    cdef int make_room(self, const uint64_t* keys, int32_t n, int32_t fits) except -1 nogil
