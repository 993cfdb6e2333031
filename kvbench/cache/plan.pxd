from libc.stdint cimport int32_t

from kvbench.cache.frame cimport Level, Place
from kvbench.cache.lookup cimport StackLookup
from kvbench.cache.stacked cimport StackedTier


cdef class StackPlan(StackLookup):
    cdef int plan(self, StackedTier tier, Place* place, int32_t t) except -1 nogil
    cdef int admit(self, StackedTier tier, Place* place, Level* level, int32_t t) except -1 nogil
    cdef int fail_puts(self, StackedTier tier, Place* place, Level* level, int32_t t) noexcept nogil
    cdef int plan_spill(self) except -1 nogil
    cdef bint has_room(self, StackedTier tier, int32_t t, int32_t taken) noexcept nogil
    cdef int32_t below_of(self, int32_t t, int32_t j) noexcept nogil
    cdef int outcome(self, int32_t i) noexcept nogil
