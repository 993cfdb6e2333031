"""The routers in front of the workers: each request goes to one of them, which picks a worker by
what it knows."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.cache.events cimport EventLog
from kvbench.memory cimport no_memory
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.load cimport LoadLedger, Routed
from kvbench.routing.policy cimport RouteQuery, RouterPolicy

from kvbench.errors import PolicyError
from kvbench.routing.load import Lag

DEFAULT_WINDOW = 8
"""Requests in flight at a worker on the average, unless the window is set."""


cdef class Dispatcher:
    """``truth`` is the index that hears of everything at once; ``routers`` are the policies. ``load`` has
    the settings of the :class:`kvbench.routing.load.LoadLedger`."""

    def __cinit__(self, KvbmIndex truth, list routers, **load):
        cdef int32_t i
        cdef RouterPolicy router
        self.truth = truth
        self.routers = routers
        self.workers = truth.workers
        for router in routers:
            if router.workers != self.workers:
                raise ValueError(f"the router knows {router.workers} workers, and there are {self.workers}")
            if router.tiers != truth.tiers and router.wants_tiers:
                raise ValueError(f"the router knows {router.tiers} tiers, and there are {truth.tiers}")
        load.setdefault("window", Lag(requests=DEFAULT_WINDOW * self.workers))
        self.ledger = LoadLedger([router.load for router in routers], **load)
        self.router_of = <PyObject**>calloc(len(routers), sizeof(PyObject*))
        self.overlap = <int32_t*>calloc(self.workers, sizeof(int32_t))
        self.tier_overlap = <int32_t*>calloc(<size_t>self.workers * truth.tiers, sizeof(int32_t))
        self.held = <int32_t*>calloc(self.workers, sizeof(int32_t))
        if self.router_of == NULL or self.overlap == NULL or self.tier_overlap == NULL or self.held == NULL:
            no_memory("dispatcher", self.workers)
        for i, router in enumerate(routers):
            self.router_of[i] = <PyObject*>router

    def __dealloc__(self):
        free(self.router_of)
        free(self.overlap)
        free(self.tier_overlap)
        free(self.held)

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        return self.truth.reserve(keys, n)

    cdef int hear(self, EventLog log, int64_t first) except -1 nogil:
        """Take over the events of ``log`` from position ``first`` on."""
        return self.truth.apply(log, first)

    cdef int dispatch(self, RouteQuery* query, Decision* decision) except -1 nogil:
        """Decide for the request of ``query``, whose overlaps are filled in here."""
        return self.decide(self.router_of[0], query, decision)

    cdef int decide(self, PyObject* router, RouteQuery* query, Decision* decision) except -1 nogil:
        cdef Routed record
        self.ledger.advance((<RouterPolicy>router).load, query.now)
        self.ask(router, self.truth, query)
        decision.worker = (<RouterPolicy>router).choose_worker(query)
        if not 0 <= decision.worker < self.workers:
            self.refuse_worker(router, decision.worker)
        decision.best = query.best
        decision.predicted = query.overlap[decision.worker]
        record.at = query.now
        record.tokens = max(query.tokens, <int64_t>0)
        record.blocks = query.blocks
        record.fresh = query.blocks - decision.predicted
        record.worker = decision.worker
        self.ledger.assign((<RouterPolicy>router).load, &record)
        return 0

    cdef int ask(self, PyObject* router, KvbmIndex index, RouteQuery* query) except -1 nogil:
        """Fill in what ``index`` says of the request."""
        query.overlap = self.overlap
        query.best = index.score(query.keys, query.blocks, self.overlap)
        query.tier_overlap = query.held = NULL
        if (<RouterPolicy>router).wants_tiers:
            index.score_tiers(query.keys, query.blocks, self.overlap, self.tier_overlap)
            query.tier_overlap = self.tier_overlap
        if (<RouterPolicy>router).wants_held:
            index.count_held(query.keys, query.blocks, self.held)
            query.held = self.held
        return 0

    cdef int refuse_worker(self, PyObject* router, int32_t worker) except -1 nogil:
        with gil:
            raise PolicyError(
                f"{type(<object>router).__name__} chose worker {worker}; workers are 0 to {self.workers - 1}"
            )
