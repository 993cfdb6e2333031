from libc.stdint cimport int32_t, int64_t, uint64_t


cdef class Numbering:
    cdef uint64_t* entries
    cdef int bits
    cdef uint64_t* keys
    cdef int64_t used, room

    cdef int number(self, const uint64_t* keys, int64_t n, int32_t* ids) except -1 nogil
    cdef int32_t number_of(self, uint64_t key) noexcept nogil
    cdef int32_t look_up(self, uint64_t key, uint64_t* at) noexcept nogil
    cdef bint knows(self, uint64_t key) noexcept nogil
    cdef int64_t find(self, const uint64_t* keys, int64_t n, int32_t* ids) noexcept nogil
    cdef int fit(self, int64_t more) except -1 nogil
    cdef int grow(self) except -1 nogil
