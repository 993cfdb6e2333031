"""What a router policy is: something that picks a worker for each request.

It is called once a request, with each worker's prefix overlap as its KVBM index sees it, and
with what it knows of the workers' load.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from kvbench.memory cimport Int32Memory
from kvbench.rng cimport stream_below, stream_seed, stream_uniform
from kvbench.routing.load cimport LoadView

from kvbench.errors import PolicyError


class RouterContext:
    """What a router is told when it is made.

    ``workers``, and the 64-bit ``seed`` of its own random stream; ``block_tokens`` of the trace
    (None without blocks); ``capacity_blocks``, what a worker's fastest tier holds (None without
    bound); and the names of the ``tiers``, fastest first.
    """

    __slots__ = ("block_tokens", "capacity_blocks", "seed", "tiers", "workers")

    def __init__(self, workers: int, seed: int = 0, *, block_tokens: int | None = None,
                 capacity_blocks: int | None = None, tiers: tuple[str, ...] = ("cache",)) -> None:
        self.workers = workers
        self.seed = seed
        self.block_tokens = block_tokens
        self.capacity_blocks = capacity_blocks
        self.tiers = tiers


cdef class RandomStream:
    """A seeded stream of random numbers, the same ones on every machine."""

    def __cinit__(self, uint64_t seed):
        stream_seed(&self.stream, seed)

    def below(self, uint64_t bound):
        """An even draw from 0 … ``bound`` - 1; ``bound`` is at least 1."""
        if bound == 0:
            raise ValueError("there is nothing below 0 to draw")
        return stream_below(&self.stream, bound)

    def uniform(self):
        """An even draw from [0, 1)."""
        return stream_uniform(&self.stream)


cdef class RouterPolicy:
    """Base of all routers; compiled ones override ``choose_worker``, declared in policy.pxd.

    ``load`` is what the router knows of the workers' load. A subclass that sets ``wants_tiers`` is
    shown the overlap by tier.
    Python classes derive from :class:`PythonRouter`, or from :class:`kvbench.routers.Router`.
    """

    def __cinit__(self, context, *args, **kwargs):
        self.workers = context.workers
        self.tiers = max(len(context.tiers), 1)
        self.load = LoadView(self.workers)

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil:
        """The worker, 0 … workers-1, that shall serve the request."""
        return 0


cdef class RouteRequest:
    """A request to be routed; all of it is good until ``choose`` returns.

    ``number``, ``time_ns``  its number in the trace, and its arrival.
    ``blocks``, ``tokens``   cacheable blocks, and tokens of the prompt (-1: not known).
    ``session``, ``tenant``  numbers of them, where the router's spec names these columns; else -1.
    ``overlap``   leading blocks that each worker holds (a read-only buffer of 32-bit integers).
    ``best``      the largest overlap.
    ``tier_overlap``  for a router that ``wants`` ``"tiers"``: tiers × workers, of the overlap the blocks
                  whose fastest copy is in the tier.
    """

    cdef int show(self, const RouteQuery* query, int32_t workers, int32_t tiers) except -1:
        self.query = query
        self.number = query.now.request
        self.time_ns = query.now.time_ns
        self.blocks = query.blocks
        self.best = query.best
        self.tokens = query.tokens
        self.session = query.session
        self.tenant = query.tenant
        memcpy(self.overlap.data, query.overlap, workers * sizeof(int32_t))
        if self.tier_overlap is not None:
            memcpy(self.tier_overlap.data, query.tier_overlap, <size_t>workers * tiers * sizeof(int32_t))
        return 0

    def key(self, int32_t block):
        """The key of block number ``block``, which stands for all the prompt up to its end."""
        if self.query == NULL or not 0 <= block < self.blocks:
            raise IndexError(f"block {block} of {self.blocks}")
        return self.query.keys[block]


cdef class PythonRouter(RouterPolicy):
    """A router written in Python. Override ``choose``; the constructor takes the
    :class:`RouterContext` and the declared parameters by keyword.

    ``wants`` names what takes time to find: ``"tiers"`` (see :class:`RouteRequest`).
    """

    wants = ()

    def __cinit__(self, context, *args, **kwargs):
        for name in self.wants:
            if name != "tiers":
                raise PolicyError(f"{type(self).__name__} wants {name!r}; there is 'tiers' to be wanted")
        self.request = RouteRequest()
        self.request.overlap = Int32Memory(self.workers)
        self.wants_tiers = "tiers" in self.wants
        if self.wants_tiers:
            self.request.tier_overlap = Int32Memory(<Py_ssize_t>self.tiers * self.workers)

    def __init__(self, context):
        pass

    def choose(self, request):
        """Return the worker for ``request``, a :class:`RouteRequest`."""
        raise NotImplementedError(f"{type(self).__name__} must define choose(request)")

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil:
        with gil:
            self.request.show(query, self.workers, self.tiers)
            worker = self.choose(self.request)
            self.request.query = NULL
            if not isinstance(worker, int) or not 0 <= worker < self.workers:
                raise PolicyError(f"{type(self).__name__}.choose returned {worker!r}; workers are 0 to {self.workers - 1}")
            return worker
