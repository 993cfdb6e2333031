"""Routers that look at nothing: round-robin and random.

Source: folklore. Cost: O(1) a request.
"""

from libc.stdint cimport int32_t

from kvbench.rng cimport Stream, stream_below, stream_seed
from kvbench.routing.policy cimport RouteQuery, RouterPolicy


cdef class RoundRobin(RouterPolicy):
    """Worker 0, 1, 2, … and around again."""

    cdef int32_t turn

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil:
        cdef int32_t worker = self.turn
        self.turn = worker + 1 if worker + 1 < self.workers else 0
        return worker


cdef class Random(RouterPolicy):
    """An even draw for each request."""

    cdef Stream stream

    def __cinit__(self, context, *args, **kwargs):
        stream_seed(&self.stream, context.seed)

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil:
        return <int32_t>stream_below(&self.stream, self.workers)
