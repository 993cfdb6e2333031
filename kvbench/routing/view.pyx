"""One router with what it knows of the workers' blocks."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.cache.events cimport EventLog
from kvbench.memory cimport no_memory
from kvbench.routing.channel cimport EventChannel
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.load cimport Moment
from kvbench.routing.policy cimport RouteQuery, RouterPolicy
from kvbench.routing.predictor cimport Predictor

from kvbench.errors import PolicyError


cdef class RouterView:
    """``router`` with its ``index``.

    ``channel``    brings the events to the index.
    ``predictor``  tells the index of the router's own decisions.
    ``hears``      the index hears of events at once; not with a channel.
    """

    def __cinit__(self, RouterPolicy router, KvbmIndex index, *, EventChannel channel=None, Predictor predictor=None,
                  bint hears=False):
        if router.workers != index.workers:
            raise ValueError(f"the router knows {router.workers} workers, and there are {index.workers}")
        if router.tiers != index.tiers and router.wants_tiers:
            raise ValueError(f"the router knows {router.tiers} tiers, and there are {index.tiers}")
        self.router = router
        self.index = index
        self.channel = channel
        self.predictor = predictor
        self.hears = hears
        self.overlap = <int32_t*>calloc(index.workers, sizeof(int32_t))
        self.tier_overlap = <int32_t*>calloc(<size_t>index.workers * index.tiers, sizeof(int32_t))
        if self.overlap == NULL or self.tier_overlap == NULL:
            no_memory("router", index.workers)

    def __dealloc__(self):
        free(self.overlap)
        free(self.tier_overlap)

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        return self.index.reserve(keys, n)

    cdef int hear(self, EventLog log, int64_t first, Moment now) except -1 nogil:
        """The events of ``log`` from position ``first`` on happen now."""
        if self.channel is not None:
            self.channel.collect(log, first, now)
        elif self.hears:
            self.index.apply(log, first)
        return 0

    cdef int32_t choose_worker(self, RouteQuery* query) except -1 nogil:
        """The worker for a request, whose overlaps are filled in here."""
        cdef int32_t worker
        if self.channel is not None:
            self.channel.advance(query.now)
        if self.predictor is not None:
            self.predictor.advance(query.now)
        self.ask(query)
        worker = self.router.choose_worker(query)
        if not 0 <= worker < self.router.workers:
            self.refuse_worker(worker)
        if self.predictor is not None:
            self.predictor.predict(query.keys, query.blocks, worker, query.now)
        return worker

    cdef int ask(self, RouteQuery* query) except -1 nogil:
        """Fill in what the index says of the request."""
        query.overlap = self.overlap
        query.best = self.index.score(query.keys, query.blocks, self.overlap)
        query.tier_overlap = NULL
        if self.router.wants_tiers:
            self.index.score_tiers(query.keys, query.best, self.overlap, self.tier_overlap)
            query.tier_overlap = self.tier_overlap
        return 0

    cdef int refuse_worker(self, int32_t worker) except -1 nogil:
        with gil:
            raise PolicyError(
                f"{type(self.router).__name__} chose worker {worker}; workers are 0 to {self.router.workers - 1}"
            )
