from libc.stdint cimport int32_t, int64_t

from kvbench.memory cimport Int64Memory

cdef enum:
    NEVER = -1   # length of a span that does not end
    NOBODY = -1  # number of the view that is no router's


# A time that passes: so many requests, or nanoseconds of the trace's clock.
cdef struct Span:
    int64_t length
    bint timed


cdef struct Moment:
    int64_t request
    int64_t time_ns


# One request in flight.
cdef struct Routed:
    Moment at
    int64_t tokens
    int32_t blocks
    int32_t fresh        # of its blocks, those that are to be computed as the router sees it
    int32_t worker
    int32_t router


cdef class LoadView:
    cdef readonly int32_t workers
    cdef readonly Int64Memory requests, prefilling, tokens, blocks, prefill_blocks
    cdef readonly Int64Memory assigned_requests, assigned_tokens, assigned_blocks
    cdef readonly Int64Memory waiting, running, used_blocks
    cdef Moment now, published
    cdef int32_t router

    cdef void take(self, const Routed* record, bint prefilling, bint in_flight) noexcept nogil
    cdef void prefill_ends(self, const Routed* record) noexcept nogil
    cdef void ends(self, const Routed* record) noexcept nogil
    cdef void publish(self, LoadView truth, Moment now) noexcept nogil
    cdef void republish(self, LoadView other) noexcept nogil


cdef bint passed(Span span, Moment since, Moment now) noexcept nogil
cdef bint is_multiple_between(Span span, Moment last, Moment now) noexcept nogil
cdef Span make_span(object lag) except *
