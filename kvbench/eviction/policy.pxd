from libc.stdint cimport int32_t

from kvbench.eviction.view cimport TierView
from kvbench.memory cimport Int32Memory

cdef enum:
    MAX_PIECES = 64


cdef class EvictionPolicy:
    cdef readonly int32_t capacity
    cdef TierView view
    # How the tier shall call; set in __cinit__ of the policy.
    cdef readonly bint one_by_one
    cdef readonly bint insert_first
    cdef readonly bint drops
    cdef readonly bint expires
    cdef readonly bint never_evicts
    cdef void* pieces[MAX_PIECES]
    cdef size_t piece_bytes[MAX_PIECES]
    cdef int piece_count

    cpdef bind(self, TierView view)
    cdef void* allocate(self, size_t count, size_t size) except NULL
    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil
    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil
    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil
    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil
    cdef int32_t drop_slot(self) except -2 nogil


cdef class PythonPolicy(EvictionPolicy):
    cdef Int32Memory scratch

    cdef TierView bound(self)
    cdef object slots_view(self, const int32_t* slots, int32_t n)
