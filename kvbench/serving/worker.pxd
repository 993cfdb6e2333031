from libc.stdint cimport int32_t, int64_t

from kvbench.serving.batching cimport Batching
from kvbench.serving.request cimport Request


cdef class Worker(Batching):
    cdef int arrive(self, Request* request) except -1 nogil
    cdef int fetched(self, Request* request) except -1 nogil
    cdef int written(self, Request* request) except -1 nogil
    cdef int wake(self) except -1 nogil
    cdef int end_step(self, int64_t number) except -1 nogil
    cdef int32_t decode_on(self) except -1 nogil
    cdef int32_t give_token(self, Request* request, int32_t growing) except -1 nogil
    cdef int grow(self, Request* request) except -1 nogil
    cdef int preempt(self, Request* request) except -1 nogil
    cdef Request* latest(self) noexcept nogil
    cdef int finish(self, Request* request) except -1 nogil
    cdef int let_go_of(self, Request* request) except -1 nogil
