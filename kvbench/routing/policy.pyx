"""What a router policy is: something that picks a worker for each request.

It is called once a request, with each worker's prefix overlap as the KVBM index sees it.
"""

from libc.stdint cimport int32_t
from libc.string cimport memcpy

from kvbench.memory cimport Int32Memory

from kvbench.errors import PolicyError


class RouterContext:
    """What a router is told when it is made: the number of ``workers`` and the 64-bit ``seed``
    of its own random stream."""

    __slots__ = ("seed", "workers")

    def __init__(self, workers: int, seed: int = 0) -> None:
        self.workers = workers
        self.seed = seed


cdef class RouterPolicy:
    """Base of all routers; compiled ones override ``choose_worker``, declared in policy.pxd.

    Python classes derive from :class:`PythonRouter` instead.
    """

    def __cinit__(self, context, *args, **kwargs):
        self.workers = context.workers

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil:
        """The worker, 0 … workers-1, that shall serve the request."""
        return 0


cdef class PythonRouter(RouterPolicy):
    """A router written in Python. Override ``choose``; the constructor takes the
    :class:`RouterContext` and the declared parameters by keyword."""

    def __cinit__(self, context, *args, **kwargs):
        self.overlap = Int32Memory(self.workers)

    def __init__(self, context):
        pass

    def choose(self, overlap, blocks):
        """Return the worker for a request of ``blocks`` cacheable blocks.

        ``overlap[w]`` is the number of leading blocks that worker w holds (a read-only buffer
        of 32-bit integers, good until the method returns).
        """
        raise NotImplementedError(f"{type(self).__name__} must define choose(overlap, blocks)")

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil:
        with gil:
            memcpy(self.overlap.data, query.overlap, self.workers * sizeof(int32_t))
            worker = self.choose(memoryview(self.overlap), query.blocks)
            if not isinstance(worker, int) or not 0 <= worker < self.workers:
                raise PolicyError(f"{type(self).__name__}.choose returned {worker!r}; workers are 0 to {self.workers - 1}")
            return worker
