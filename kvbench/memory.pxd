from libc.stdint cimport int32_t, int64_t


cdef class Int32Memory:
    cdef int32_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]


cdef int no_memory(const char* what, int64_t wanted) except -1 nogil
