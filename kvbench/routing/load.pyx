"""What a router knows of the workers' load, and the time that passes until it does.

A router counts the requests that it sent out itself, at once; it hears of the other routers'
after a time, or never; and the workers publish figures of their own from time to time. A ledger
(ledger.pyx) brings all that into the router's view.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from kvbench.memory cimport Int64Memory


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


cdef bint is_multiple_between(Span span, Moment last, Moment now) noexcept nogil:
    """Whether a multiple of ``span`` lies behind ``last``, and not behind ``now``; always for a span of nothing."""
    if span.length <= 0:
        return span.length == 0
    if span.timed:
        return now.time_ns // span.length > last.time_ns // span.length
    return now.request // span.length > last.request // span.length


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

    cdef void republish(self, LoadView other) noexcept nogil:
        """Take over what ``other`` has as published."""
        memcpy(self.running.data, other.running.data, self.workers * sizeof(int64_t))
        memcpy(self.waiting.data, other.waiting.data, self.workers * sizeof(int64_t))
        memcpy(self.used_blocks.data, other.used_blocks.data, self.workers * sizeof(int64_t))
        self.published = other.published
