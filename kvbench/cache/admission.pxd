from libc.stdint cimport int32_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost
from kvbench.eviction.policy cimport EvictionPolicy


cdef class AdmissionFilter:
    cdef readonly bint asks_presence   # what the tier has already is not offered to it again

    cdef int admit_keys(self, const uint64_t* keys, int32_t n, uint8_t* admitted) except -1 nogil


cdef class MinCount(AdmissionFilter):
    cdef EvictionPolicy memory   # owns the ghosts' memory
    cdef Ghost offers
    cdef int32_t count


cdef class TinyLfu(AdmissionFilter):
    cdef uint8_t* counters
    cdef uint64_t cells
    cdef uint64_t sample, seen
    cdef int32_t count

    cdef int offer(self, uint64_t key) noexcept nogil


cdef class PythonAdmission(AdmissionFilter):
    cdef object answers(self, const uint64_t* keys, int32_t n)
