from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport Event, EventLog
from kvbench.cache.table cimport BlockTable
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.view cimport TierView


cdef class SlotStore:
    cdef readonly str name
    cdef readonly int32_t worker     # whose request is served
    cdef readonly int32_t store      # which of the tier's stores this is
    cdef readonly int level          # position of the tier in the stack, 0: fastest
    cdef readonly EvictionPolicy policy
    cdef readonly int32_t used
    cdef readonly int32_t pinned
    cdef BlockTable table
    cdef EventLog log
    cdef bint limited
    cdef int32_t limit         # blocks that may stay
    cdef int32_t size          # slots there are
    cdef int32_t fresh         # slots from here on were never used
    cdef uint64_t* keys        # slot -> key
    cdef int32_t* refs         # slot -> 0 free, 1 resident, 1 + pins
    cdef TierView view
    cdef int32_t* free_slots   # ring of emptied slots, oldest first
    cdef int32_t free_head, free_count

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int fit_slots(self, int64_t wanted) except -1 nogil
    cdef move_slots(self, int64_t size)
    cdef compact_ring(self, int64_t size)
    cdef int32_t take_slot(self, uint64_t key) noexcept nogil
    cdef int release_slots(self, const int32_t* slots, int32_t n, int reason) except -1 nogil
    cdef bint holds(self, int32_t slot, uint64_t key) noexcept nogil
    cdef Event* record(self, int kind, int reason, uint64_t key, bint has_parent, uint64_t parent) except NULL nogil
    cdef int check(self) except -1 nogil
