from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.frame cimport Level, Place
from kvbench.cache.plan cimport StackPlan
from kvbench.cache.stacked cimport StackedTier


cdef class TierStack(StackPlan):
    cdef int commit(self) except -1 nogil
    cdef void pin(self, StackedTier tier, int32_t chunks, int32_t by) noexcept nogil
    cdef int store(self, StackedTier tier, Place* place, Level* level, int32_t t, int32_t r) except -1 nogil
    cdef void follow_moves(self, StackedTier tier, Place* place, Level* level) noexcept nogil
    cdef int free_beside(self, StackedTier tier, int32_t own, int32_t chunks) except -1 nogil
    cdef int32_t hold_extra(self, StackedTier tier, Place* place, Level* level, int32_t missing) except -1 nogil
    cdef int32_t add_copies(self, StackedTier tier, Place* place, Level* level) noexcept nogil
    cdef int store_batch(self, StackedTier tier, Place* place, Level* level) except -1 nogil
    cdef int take_sources(self, StackedTier tier, Place* place, int32_t r, int32_t fits) except -1 nogil
    cdef bint take_source(self, StackedTier below, int32_t j, uint64_t key) except -1 nogil
    cdef int finish(self) except -1 nogil
    cdef int do_one(self, int mode, const uint64_t[::1] keys, int32_t skip, int32_t asked, int64_t request,
                    int64_t time_ns) except -1
    cdef list new_blocks(self, int32_t skip, int32_t n)
