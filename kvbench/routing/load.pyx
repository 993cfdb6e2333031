"""What routers know of the workers' load.

A router counts the requests that it sent out itself, at once; it hears of the other routers'
after a time, or never; and the workers publish figures of their own from time to time.

In order replay workers have no clock, so how long a request lasts is a stated model: it is **in
flight** for a window of so many requests, or so much time of the trace; for a first share of the
window it waits and is prefilled (``prefilling``), for the rest it decodes. Its blocks are in use
all the while. Timed replay writes what really happens into the same arrays.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kvbench.memory cimport Int64Memory, no_memory

from kvbench.units import AT_ONCE
from kvbench.units import NEVER as never


cdef Span make_span(object lag) except *:
    """The span of a :class:`kvbench.units.Lag`."""
    cdef Span span
    span.timed = lag.ns is not None
    span.length = NEVER if lag.length is None else lag.length
    return span


cdef inline void add(int64_t* figures, int32_t worker, int64_t value) noexcept nogil:
    figures[worker] += value


cdef bint passed(Span span, Moment since, Moment now) noexcept nogil:
    """Whether ``span`` is over; one of nothing is over at once, and one of n requests when n more have come
    between."""
    if span.length <= 0:
        return span.length == 0
    if span.timed:
        return now.time_ns - since.time_ns >= span.length
    return now.request - since.request > span.length


@cython.final
cdef class LoadView:
    """The load of each worker as one router knows it; arrays have a figure a worker.

    By its own count: ``requests``, ``tokens`` and ``blocks`` (of prompts) in flight, of these
    requests those ``prefilling``, and their ``prefill_blocks``, which had not been predicted to
    hit. Since the start: ``assigned_requests``, ``assigned_tokens``, ``assigned_blocks``.
    As the workers published them last: requests ``waiting`` (prefilling) and ``running`` (decoding),
    and ``used_blocks`` of requests in flight.
    """

    def __cinit__(self, int32_t workers):
        self.workers = workers
        self.requests = Int64Memory(workers)
        self.prefilling = Int64Memory(workers)
        self.tokens = Int64Memory(workers)
        self.blocks = Int64Memory(workers)
        self.prefill_blocks = Int64Memory(workers)
        self.assigned_requests = Int64Memory(workers)
        self.assigned_tokens = Int64Memory(workers)
        self.assigned_blocks = Int64Memory(workers)
        self.waiting = Int64Memory(workers)
        self.running = Int64Memory(workers)
        self.used_blocks = Int64Memory(workers)
        self.router = NOBODY

    @property
    def age_requests(self):
        """Requests since the workers published their figures."""
        return self.now.request - self.published.request

    cdef bint counts(self, const Routed* record, int64_t number) noexcept nogil:
        """Whether the record has been counted here: the router's own, and others' once heard of."""
        return record.router == self.router or (self.sync.length != NEVER and number < self.heard)

    cdef void take(self, const Routed* record, bint prefilling, bint in_flight) noexcept nogil:
        cdef int32_t w = record.worker
        add(self.assigned_requests.data, w, 1)
        add(self.assigned_tokens.data, w, record.tokens)
        add(self.assigned_blocks.data, w, record.blocks)
        if in_flight:
            add(self.requests.data, w, 1)
            add(self.tokens.data, w, record.tokens)
            add(self.blocks.data, w, record.blocks)
        if prefilling:
            add(self.prefilling.data, w, 1)
            add(self.prefill_blocks.data, w, record.fresh)

    cdef void prefill_ends(self, const Routed* record) noexcept nogil:
        add(self.prefilling.data, record.worker, -1)
        add(self.prefill_blocks.data, record.worker, -record.fresh)

    cdef void ends(self, const Routed* record) noexcept nogil:
        add(self.requests.data, record.worker, -1)
        add(self.tokens.data, record.worker, -record.tokens)
        add(self.blocks.data, record.worker, -record.blocks)

    cdef void publish(self, LoadView truth, Moment now) noexcept nogil:
        cdef int32_t w
        for w in range(self.workers):
            self.running.data[w] = truth.requests.data[w] - truth.prefilling.data[w]
        memcpy(self.waiting.data, truth.prefilling.data, self.workers * sizeof(int64_t))
        memcpy(self.used_blocks.data, truth.blocks.data, self.workers * sizeof(int64_t))
        self.published = now


@cython.final
cdef class LoadLedger:
    """The requests in flight, and what the routers with these ``views`` know of them.

    ``window``  how long a request is in flight; it is prefilled for ``prefill_share`` of that.
    ``sync``    after what time routers hear of each other's requests.
    ``period``  between two publications of the workers' figures.
    Each is a :class:`kvbench.units.Lag`. Memory is bounded by the requests in flight or unheard of.
    """

    def __cinit__(self, list views, *, window, double prefill_share=0.25, sync=never, period=AT_ONCE):
        cdef int32_t i
        cdef LoadView view
        self.views = views
        self.window = make_span(window)
        self.prefill = self.window
        if self.window.length > 0:
            self.prefill.length = <int64_t>(self.window.length * prefill_share)
        self.period = make_span(period)
        self.truth = LoadView(views[0].workers)
        for i, view in enumerate(views):
            view.router = i
            view.sync = make_span(sync)
        self.room = 1024
        self.records = <Routed*>calloc(self.room, sizeof(Routed))
        if self.records == NULL:
            no_memory("load ledger", self.room)

    def __dealloc__(self):
        free(self.records)

    cdef int assign(self, LoadView view, const Routed* record) except -1 nogil:
        """The router that has ``view`` sent a request out."""
        if self.count - self.first == self.room:
            self.make_room()
        self.records[self.count & (self.room - 1)] = record[0]
        self.records[self.count & (self.room - 1)].router = view.router
        self.count += 1
        view.take(record, True, True)
        return 0

    cdef int advance(self, LoadView view, Moment now) except -1 nogil:
        """Bring ``view`` to the moment ``now``."""
        self.catch_up(view, now)
        if self.due(view.published, now):
            self.catch_up(self.truth, now)
            view.publish(self.truth, now)
        return 0

    cdef bint due(self, Moment last, Moment now) noexcept nogil:
        """Whether a publication is due: at every multiple of the period. Of several that have been missed
        there is one, with the figures of now."""
        cdef int64_t since = last.time_ns if self.period.timed else last.request
        cdef int64_t at = now.time_ns if self.period.timed else now.request
        if self.period.length <= 0:
            return self.period.length == 0
        return at // self.period.length > since // self.period.length

    cdef void catch_up(self, LoadView view, Moment now) noexcept nogil:
        cdef Routed* record
        view.now = now
        while view.heard < self.count:
            record = &self.records[view.heard & (self.room - 1)]
            if record.router != view.router and view.sync.length != NEVER:
                if not passed(view.sync, record.at, now):
                    break
                view.take(record, view.heard >= view.prefilled, view.heard >= view.ended)
            view.heard += 1
        while view.prefilled < self.count:
            record = &self.records[view.prefilled & (self.room - 1)]
            if not passed(self.prefill, record.at, now):
                break
            if view.counts(record, view.prefilled):
                view.prefill_ends(record)
            view.prefilled += 1
        while view.ended < view.prefilled:
            record = &self.records[view.ended & (self.room - 1)]
            if not passed(self.window, record.at, now):
                break
            if view.counts(record, view.ended):
                view.ends(record)
            view.ended += 1

    cdef int make_room(self) except -1 nogil:
        """Forget the records that every view has dealt with; twice the ring if these are few."""
        cdef int64_t number
        cdef int64_t first
        cdef Routed* records
        cdef Routed* old
        with gil:
            first = self.settle(self.records[(self.count - 1) & (self.room - 1)].at)
        self.first = first
        if 2 * (self.count - first) <= self.room:
            return 0
        records = <Routed*>calloc(2 * self.room, sizeof(Routed))
        if records == NULL:
            no_memory("load ledger", 2 * self.room)
        for number in range(first, self.count):
            records[number & (2 * self.room - 1)] = self.records[number & (self.room - 1)]
        old = self.records
        self.records = records
        self.room *= 2
        free(old)
        return 0

    cdef int64_t settle(self, Moment now) except -1:
        """Bring all views to the moment ``now``; returns the first record that one of them has yet to deal with."""
        cdef int64_t first = self.count
        cdef LoadView view
        for view in [self.truth, *self.views]:
            self.catch_up(view, now)
            first = min(first, view.heard, view.ended)
        return first
