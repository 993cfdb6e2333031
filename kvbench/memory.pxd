from libc.stdint cimport int32_t, int64_t, uint64_t


cdef class Memory:
    cdef void* start
    cdef Py_ssize_t size
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]
    cdef const char* format

    cdef int setup(self, Py_ssize_t size, Py_ssize_t width, const char* format) except -1


cdef class Int32Memory(Memory):
    cdef int32_t* data


cdef class UInt64Memory(Memory):
    cdef uint64_t* data


cdef int no_memory(const char* what, int64_t wanted) except -1 nogil
