from libc.stdint cimport int32_t

from kvbench.cache.slots cimport SlotStore


cdef class VictimStore(SlotStore):
    cdef int32_t evicted   # blocks, by the request being served

    cdef int refuse(self, int32_t slot) except -1 nogil
    cdef int give_up(self, const int32_t* victims, int32_t n) except -1 nogil
    cdef int too_few(self, int32_t found, int32_t n) except -1 nogil
    cdef int take_victims(self, const int32_t* victims, int32_t found) except -1 nogil
    cdef int evict(self, int32_t n, int32_t* victims) except -1 nogil
