from libc.stdint cimport int32_t, int64_t

from kvbench.memory cimport Int32Memory


cdef struct RouteQuery:
    int32_t blocks             # cacheable blocks of the request
    int32_t best               # largest overlap
    const int32_t* overlap     # worker -> leading blocks it holds


cdef class RouterPolicy:
    cdef readonly int32_t workers

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil


cdef class PythonRouter(RouterPolicy):
    cdef Int32Memory overlap
