"""MaxPrefix: the worker that holds the longest prefix of the request.

The score of a worker is the number of leading blocks it holds over the blocks of the request
(semantics §8.2); the name is kvbench's own. There is no load term: where all prompts share
their first block, every request follows the first one to the same worker. The summary's
max/mean load shows it.

Source: kvbench; it is Dynamo's overlap credit without the load terms. Cost: O(workers) a
request on top of the index's one pass.
"""

from libc.stdint cimport int32_t

from kvbench.rng cimport Stream, stream_below, stream_seed
from kvbench.routing.policy cimport RouteQuery, RouterPolicy


cdef class MaxPrefix(RouterPolicy):
    """``fallback`` decides where nobody holds anything: ``random`` or ``round-robin``.
    Ties among holders go to a seeded random one."""

    cdef Stream stream
    cdef bint take_turns
    cdef int32_t turn

    def __cinit__(self, context, *, str fallback="random"):
        stream_seed(&self.stream, context.seed)
        self.take_turns = fallback == "round-robin"

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil:
        cdef int32_t worker, ties = 0
        cdef int32_t pick
        if query.best == 0:
            if self.take_turns:
                worker = self.turn
                self.turn = worker + 1 if worker + 1 < self.workers else 0
                return worker
            return <int32_t>stream_below(&self.stream, self.workers)
        for worker in range(self.workers):
            ties += query.overlap[worker] == query.best
        # One holder needs no draw; the stream moves only where there is a choice.
        pick = <int32_t>stream_below(&self.stream, ties) if ties > 1 else 0
        for worker in range(self.workers):
            if query.overlap[worker] == query.best:
                if pick == 0:
                    return worker
                pick -= 1
        return 0
