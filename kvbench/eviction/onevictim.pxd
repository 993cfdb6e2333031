from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy


cdef class OneVictimPolicy(EvictionPolicy):
    cdef void expect_incoming(self) noexcept nogil
    cdef int32_t evict_one(self) noexcept nogil
    cdef void forget(self, int32_t slot) noexcept nogil
