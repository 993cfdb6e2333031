from libc.stdint cimport int32_t

from kvbench.memory cimport Int32Memory


cdef class EvictionPolicy:
    cdef readonly int32_t capacity
    cdef Int32Memory refs_memory
    cdef const int32_t* refs

    cpdef bind(self, Int32Memory refs)
    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil
    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil
    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil
    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil


cdef class PythonPolicy(EvictionPolicy):
    cdef Int32Memory scratch

    cdef object slots_view(self, const int32_t* slots, int32_t n)
