from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport EventLog
from kvbench.cache.table cimport BlockTable
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.view cimport TierView

cdef enum SweepOrder:
    TAIL_FIRST = 0
    HEAD_FIRST = 1
    ACCESS = 2


cdef class Tier:
    cdef readonly str name
    cdef readonly int32_t worker
    cdef readonly EvictionPolicy policy
    cdef readonly int32_t used
    cdef readonly int32_t pinned
    cdef readonly int64_t sequence
    cdef BlockTable table
    cdef EventLog log
    cdef int order
    cdef bint limited
    cdef int32_t limit         # blocks that may stay
    cdef int32_t size          # slots there are
    cdef int32_t fresh         # slots from here on were never used
    cdef uint64_t* keys        # slot -> key
    cdef int32_t* refs         # slot -> 0 free, 1 resident, 1 + pins
    cdef TierView view
    cdef int32_t* free_slots   # ring of emptied slots, oldest first
    cdef int32_t free_head, free_count

    # The request being served; `slots` holds what its lookup found, in block order.
    cdef int32_t* slots
    cdef int32_t* sweep
    cdef int64_t scratch
    cdef int32_t resident, stored, evicted, truncated

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int32_t lookup(self, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil
    cdef int commit(self, const uint64_t* keys, int32_t n) except -1 nogil
    cdef int32_t access(self, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil

    cdef int fit_scratch(self, int64_t n) except -1 nogil
    cdef int fit_slots(self, int64_t wanted) except -1 nogil
    cdef move_slots(self, int64_t size)
    cdef compact_ring(self, int64_t size)
    cdef int32_t take_slot(self, uint64_t key) noexcept nogil
    cdef int release_slots(self, const int32_t* slots, int32_t n, int reason) except -1 nogil
    cdef int refuse(self, int32_t slot) except -1 nogil
    cdef int store(self, const uint64_t* keys, int32_t n, int32_t fits) except -1 nogil
    cdef int store_one(self, const uint64_t* keys, int32_t i, int32_t step) except -1 nogil
    cdef int32_t leading_fit(self, int32_t n) noexcept nogil
    cdef bint holds(self, int32_t slot, uint64_t key) noexcept nogil
    cdef int32_t decoded(self, int32_t i) noexcept nogil
    cdef int sweep_one_by_one(self, const uint64_t* keys, int32_t n) except -1 nogil
    cdef int tell_one(self, int32_t slot, int32_t depth, int32_t step, bint stored) except -1 nogil
    cdef int take_victims(self, const int32_t* victims, int32_t found) except -1 nogil
    cdef int sweep_over(self, int32_t n) except -1 nogil
    cdef int tell(self, const int32_t* run, int32_t n, bint stored) except -1 nogil
    cdef int evict(self, int32_t n, int32_t* victims) except -1 nogil
    cdef int32_t make_room(self, const uint64_t* keys, int32_t n) except -1 nogil
    cdef int record(self, int kind, int reason, uint64_t key, bint has_parent, uint64_t parent) except -1 nogil
    cdef int check(self) except -1 nogil
