"""The requests in flight, and who hears of them when: the window of order replay.

In order replay workers have no clock, so how long a request lasts is a stated model: it is **in
flight** for a window of so many requests, or so much time of the trace; for a first share of the
window it waits and is prefilled (``prefilling``), for the rest it decodes. Its blocks are in use
all the while. Timed replay knows better (clockledger.pyx).
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kvbench.memory cimport no_memory
from kvbench.routing.load cimport NEVER, LoadView, Moment, Routed, is_multiple_between, make_span, passed

cdef enum:
    FIRST_ROOM = 1024


cdef class LoadLedger:
    """Base: keeps the ``views`` of the routers.

    ``sync``    after what time routers hear of each other's requests, a :class:`kvbench.units.Lag`.
    ``period``  lag between two publications of the workers' figures.
    """

    def __cinit__(self, list views, *, sync, period, **settings):
        cdef int32_t i
        cdef LoadView view
        self.views = views
        self.count = len(views)
        self.sync = make_span(sync)
        self.period = make_span(period)
        self.truth = LoadView(views[0].workers)
        self.view_of = <PyObject**>calloc(self.count, sizeof(PyObject*))
        if self.view_of == NULL:
            no_memory("load ledger", self.count)
        for i, view in enumerate(views):
            view.router = i
            self.view_of[i] = <PyObject*>view

    def __dealloc__(self):
        free(self.view_of)

    cdef int64_t assign(self, LoadView view, const Routed* record) except -1 nogil:
        """The router that has ``view`` sent a request out; returns a handle of it."""
        return 0

    cdef int advance(self, LoadView view, Moment now) except -1 nogil:
        """Bring ``view`` to the moment ``now``."""
        return 0

    cdef int prefill_ended(self, int64_t handle, Moment now) except -1 nogil:
        """The prefill of a request has ended."""
        return 0

    cdef int ended(self, int64_t handle, Moment now) except -1 nogil:
        """A request has ended."""
        return 0


@cython.final
cdef class WindowLedger(LoadLedger):
    """A request is in flight for ``window``, a :class:`kvbench.units.Lag`, and prefilled for ``prefill_share`` of
    that, whatever it is told of ends. Memory is bounded by the requests in flight or unheard of."""

    def __cinit__(self, list views, *, sync, period, window, double prefill_share=0.25):
        self.window = make_span(window)
        self.prefill = self.window
        if self.window.length > 0:
            self.prefill.length = <int64_t>(self.window.length * prefill_share)
        self.room = FIRST_ROOM
        self.records = <Routed*>calloc(self.room, sizeof(Routed))
        self.progress = <Progress*>calloc(self.count + 1, sizeof(Progress))
        if self.records == NULL or self.progress == NULL:
            no_memory("load ledger", self.room)

    def __dealloc__(self):
        free(self.records)
        free(self.progress)

    cdef int64_t assign(self, LoadView view, const Routed* record) except -1 nogil:
        if self.last - self.first == self.room:
            self.make_room()
        self.records[self.last & (self.room - 1)] = record[0]
        self.records[self.last & (self.room - 1)].router = view.router
        self.last += 1
        view.take(record, True, True)
        self.truth.take(record, True, True)
        return self.last - 1

    cdef int advance(self, LoadView view, Moment now) except -1 nogil:
        view.now = now
        self.catch_up(view, view.router, now)
        # Of several publications that have been missed there is one, with the figures of now.
        if is_multiple_between(self.period, view.published, now):
            self.catch_up(self.truth, self.count, now)
            view.publish(self.truth, now)
        return 0

    cdef bint counts(self, int32_t number, const Routed* record, int64_t at) noexcept nogil:
        """Whether view ``number`` has counted the record at position ``at``: its own, and others' once heard of."""
        return number == self.count or record.router == number or (
            self.sync.length != NEVER and at < self.progress[number].heard
        )

    cdef void catch_up(self, LoadView view, int32_t number, Moment now) noexcept nogil:
        cdef Progress* done = &self.progress[number]
        cdef Routed* record
        while done.heard < self.last:
            record = &self.records[done.heard & (self.room - 1)]
            if number < self.count and record.router != number and self.sync.length != NEVER:
                if not passed(self.sync, record.at, now):
                    break
                view.take(record, done.heard >= done.prefilled, done.heard >= done.ended)
            done.heard += 1
        while done.prefilled < self.last:
            record = &self.records[done.prefilled & (self.room - 1)]
            if not passed(self.prefill, record.at, now):
                break
            if self.counts(number, record, done.prefilled):
                view.prefill_ends(record)
            done.prefilled += 1
        while done.ended < done.prefilled:
            record = &self.records[done.ended & (self.room - 1)]
            if not passed(self.window, record.at, now):
                break
            if self.counts(number, record, done.ended):
                view.ends(record)
            done.ended += 1

    cdef int make_room(self) except -1 nogil:
        """Forget the records that every view has dealt with; twice the ring if these are few."""
        cdef int64_t at, first = self.settle(self.records[(self.last - 1) & (self.room - 1)].at)
        cdef Routed* records
        self.first = first
        if 2 * (self.last - first) <= self.room:
            return 0
        records = <Routed*>calloc(2 * self.room, sizeof(Routed))
        if records == NULL:
            no_memory("load ledger", 2 * self.room)
        for at in range(first, self.last):
            records[at & (2 * self.room - 1)] = self.records[at & (self.room - 1)]
        free(self.records)
        self.records = records
        self.room *= 2
        return 0

    cdef int64_t settle(self, Moment now) noexcept nogil:
        """Bring all views to the moment ``now``; returns the first record that one of them has yet to deal with."""
        cdef int32_t i
        cdef int64_t first = self.last
        self.catch_up(self.truth, self.count, now)
        for i in range(self.count):
            self.catch_up(<LoadView>self.view_of[i], i, now)
        for i in range(self.count + 1):
            first = min(first, self.progress[i].heard, self.progress[i].ended)
        return first
