"""The routers in front of the workers. Requests go to them in turn; each picks a worker by what it knows."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.cache.events cimport EventLog
from kvbench.memory cimport no_memory
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.clockledger cimport ClockLedger
from kvbench.routing.ledger cimport WindowLedger
from kvbench.routing.load cimport Moment, Routed
from kvbench.routing.policy cimport RouteQuery
from kvbench.routing.view cimport RouterView

from kvbench.units import AT_ONCE, Lag
from kvbench.units import NEVER as never

DEFAULT_WINDOW = 8
"""Requests in flight at a worker on the average, unless the window is set."""


cdef class Dispatcher:
    """``truth`` is the index that hears of everything at once, ``views`` are the routers. A view of the truth
    itself is of a router that knows all.

    ``timed``   the dispatcher is told when requests end (:class:`kvbench.routing.clockledger.ClockLedger`); else they
                are in flight for ``window``, prefilled for ``prefill_share`` of it
                (:class:`kvbench.routing.ledger.WindowLedger`).
    ``sync``    lag after which routers hear of each other's requests.
    ``period``  lag between two publications of the workers' figures.
    """

    def __cinit__(self, KvbmIndex truth, list views, *, bint timed=False, window=None, double prefill_share=0.25,
                  sync=never, period=AT_ONCE):
        cdef int32_t i
        cdef RouterView view
        self.truth = truth
        self.views = views
        self.workers = truth.workers
        for view in views:
            if view.index.workers != self.workers or view.index.tiers != truth.tiers:
                raise ValueError("the routers' indexes are not of these workers")
        known = [view.router.load for view in views]
        if timed:
            self.ledger = ClockLedger(known, sync=sync, period=period)
        else:
            window = Lag(requests=DEFAULT_WINDOW * self.workers) if window is None else window
            self.ledger = WindowLedger(known, sync=sync, period=period, window=window, prefill_share=prefill_share)
        self.count = len(views)
        self.view_of = <PyObject**>calloc(self.count, sizeof(PyObject*))
        self.overlap = <int32_t*>calloc(self.workers, sizeof(int32_t))
        if self.view_of == NULL or self.overlap == NULL:
            no_memory("dispatcher", self.workers)
        for i, view in enumerate(views):
            self.view_of[i] = <PyObject*>view

    def __dealloc__(self):
        free(self.view_of)
        free(self.overlap)

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        cdef int32_t i
        self.truth.reserve(keys, n)
        for i in range(self.count):
            (<RouterView>self.view_of[i]).reserve(keys, n)
        return 0

    cdef int hear(self, EventLog log, int64_t first, Moment now) except -1 nogil:
        """The events of ``log`` from position ``first`` on happen now."""
        cdef int32_t i
        self.truth.apply(log, first)
        for i in range(self.count):
            (<RouterView>self.view_of[i]).hear(log, first, now)
        return 0

    cdef int dispatch(self, RouteQuery* query, Decision* decision) except -1 nogil:
        """Decide for the request of ``query``, whose overlaps are filled in."""
        return self.decide(self.view_of[query.now.request % self.count], query, decision)

    cdef int prefill_ended(self, int64_t handle, Moment now) except -1 nogil:
        """The prefill of the request that was decided under this handle has ended."""
        return self.ledger.prefill_ended(handle, now)

    cdef int ended(self, int64_t handle, Moment now) except -1 nogil:
        """The request of this handle has ended, whether it was prefilled or not."""
        return self.ledger.ended(handle, now)

    cdef int decide(self, PyObject* view, RouteQuery* query, Decision* decision) except -1 nogil:
        cdef Routed record
        self.ledger.advance((<RouterView>view).router.load, query.now)
        decision.worker = (<RouterView>view).choose_worker(query)
        decision.predicted = query.overlap[decision.worker]
        decision.best = query.best
        if (<RouterView>view).index is not self.truth:
            decision.best = self.truth.score(query.keys, query.blocks, self.overlap)
        record.at = query.now
        record.tokens = max(query.tokens, <int64_t>0)
        record.blocks = query.blocks
        record.fresh = query.blocks - decision.predicted
        record.worker = decision.worker
        decision.handle = self.ledger.assign((<RouterView>view).router.load, &record)
        return 0
