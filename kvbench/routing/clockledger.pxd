from libc.stdint cimport int64_t

from kvbench.routing.ledger cimport LoadLedger
from kvbench.routing.load cimport LoadView, Moment, Routed


cdef enum FactKind:
    STARTS
    PREFILL_ENDS
    ENDS


# What routers have yet to hear of.
cdef struct Fact:
    Routed request
    Moment at
    FactKind kind


cdef struct Flight:
    Routed request
    bint prefilling
    int64_t next         # in the list of free places; IN_FLIGHT for one that is taken


cdef class ClockLedger(LoadLedger):
    cdef LoadView shown        # has the figures that were published last
    cdef Moment now
    cdef Flight* flights
    cdef int64_t places, free_place
    cdef readonly int64_t in_flight
    cdef bint tells            # routers hear of each other
    cdef Fact* facts           # a ring
    cdef int64_t room, first, last
    cdef int64_t* heard        # of each view, the facts that it has dealt with

    cdef Flight* flight_of(self, int64_t handle) except NULL nogil
    cdef void come_to(self, Moment now) noexcept nogil
    cdef void come_to_end(self, Moment now) noexcept nogil
    cdef int land(self, Flight* flight) except -1 nogil
    cdef int note(self, const Routed* request, FactKind kind) except -1 nogil
    cdef void hear(self, LoadView view) noexcept nogil
    cdef int add_places(self) except -1 nogil
    cdef int make_room(self) except -1 nogil
