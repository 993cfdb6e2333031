from libc.stdint cimport int32_t, uint64_t

from kvbench.cache.stack cimport TierStack
from kvbench.replays.order cimport OrderReplay, Row


# Columns of a row of tier counts after those of each tier.
cdef enum OtherColumns:
    NOT_ADMITTED_AT = 0
    FAULT_AT
    OVERLAP_AT
    LOST_AT
    BEHIND_AT
    NOT_VISIBLE_AT
    DECLINED_AT
    OTHERS


cdef class TieredReplay(OrderReplay):
    cdef int32_t* tier_rows
    cdef int32_t levels
    cdef object fold   # of all events so far, in a debug build

    cdef void count_tiers(self, TierStack stack, int32_t n, int32_t* counts) noexcept nogil
    cdef int explain_tiers(self, const uint64_t* keys, TierStack stack, int32_t n, Row* row,
                           int32_t* counts) except -1 nogil
    cdef int32_t evicted_from(self, TierStack stack, int32_t i, int32_t n) noexcept nogil
    cdef int32_t note_outcome(self, const uint64_t* keys, int32_t n, TierStack stack) except -1 nogil
