from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.table cimport HashTable


cdef class CopyCounts:
    cdef HashTable table
    cdef uint64_t* names
    cdef int32_t* counts
    cdef int32_t* unused
    cdef int32_t room, fresh, unused_count
    cdef int32_t size        # copies that there are several of

    cdef int add(self, uint64_t copy) except -1 nogil
    cdef bint drop(self, uint64_t copy, bint all_of_them) noexcept nogil
    cdef int grow(self) except -1 nogil
