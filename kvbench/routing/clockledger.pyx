"""The requests in flight, and who hears of them when: as timed replay tells it.

The router that sent a request sees its response, so it knows at once when the prefill and the request
have ended; the others hear of starts and ends alike after a time, or never. What workers publish is
the truth just before the last multiple of the period.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc

from kvbench.memory cimport no_memory
from kvbench.routing.ledger cimport LoadLedger
from kvbench.routing.load cimport NEVER, LoadView, Moment, Routed, is_multiple_between, passed

cdef enum:
    FIRST_ROOM = 1024
    NO_PLACE = -1
    IN_FLIGHT = -2


@cython.final
cdef class ClockLedger(LoadLedger):
    """Is told of what happens in the order of time. Memory is bounded by the requests in flight, and by what a
    router has yet to hear of.

    Requests of a moment are numbers of dispatches in their order; of a moment at which something ends
    only the time counts.
    """

    def __cinit__(self, list views, *, sync, period):
        self.shown = LoadView(self.truth.workers)
        self.tells = self.count > 1 and self.sync.length != NEVER
        self.free_place = NO_PLACE
        self.room = FIRST_ROOM
        self.facts = <Fact*>calloc(self.room, sizeof(Fact))
        self.heard = <int64_t*>calloc(self.count, sizeof(int64_t))
        if self.facts == NULL or self.heard == NULL:
            no_memory("load ledger", self.room)

    def __dealloc__(self):
        free(self.flights)
        free(self.facts)
        free(self.heard)

    cdef int64_t assign(self, LoadView view, const Routed* record) except -1 nogil:
        cdef int64_t handle
        cdef Flight* flight
        self.come_to(record.at)
        if self.free_place == NO_PLACE:
            self.add_places()
        handle = self.free_place
        flight = &self.flights[handle]
        self.free_place = flight.next
        flight.next = IN_FLIGHT
        flight.request = record[0]
        flight.request.router = view.router
        flight.prefilling = True
        self.in_flight += 1
        view.take(&flight.request, True, True)
        self.truth.take(&flight.request, True, True)
        self.note(&flight.request, STARTS)
        return handle

    cdef int prefill_ended(self, int64_t handle, Moment now) except -1 nogil:
        """The prefill has ended; of one that is prefilled again (preemption) the first end counts."""
        cdef Flight* flight = self.flight_of(handle)
        self.come_to_end(now)
        return self.land(flight) if flight.prefilling else 0

    cdef int ended(self, int64_t handle, Moment now) except -1 nogil:
        """A request has ended, be it while it was prefilled. Its handle may be given to another one from now on."""
        cdef Flight* flight = self.flight_of(handle)
        self.come_to_end(now)
        if flight.prefilling:
            self.land(flight)
        (<LoadView>self.view_of[flight.request.router]).ends(&flight.request)
        self.truth.ends(&flight.request)
        self.note(&flight.request, ENDS)
        flight.next = self.free_place
        self.free_place = handle
        self.in_flight -= 1
        return 0

    cdef int land(self, Flight* flight) except -1 nogil:
        flight.prefilling = False
        (<LoadView>self.view_of[flight.request.router]).prefill_ends(&flight.request)
        self.truth.prefill_ends(&flight.request)
        return self.note(&flight.request, PREFILL_ENDS)

    cdef int advance(self, LoadView view, Moment now) except -1 nogil:
        cdef Moment published
        self.come_to(now)
        view.now = now
        self.hear(view)
        if self.period.length == 0:
            view.publish(self.truth, now)
            return 0
        published = self.shown.published
        if view.published.time_ns != published.time_ns or view.published.request != published.request:
            view.republish(self.shown)
        return 0

    cdef void come_to(self, Moment now) noexcept nogil:
        """Go on to a moment at which nothing has happened yet."""
        if self.period.length > 0 and is_multiple_between(self.period, self.now, now):
            self.shown.publish(self.truth, now)
        self.now = now

    cdef void come_to_end(self, Moment now) noexcept nogil:
        """Go on to a time at which something ends, between the last dispatch and the next."""
        cdef int64_t request = self.now.request
        now.request = request + 1
        self.come_to(now)
        self.now.request = request

    cdef void hear(self, LoadView view) noexcept nogil:
        """Let a view hear of what it is to know by now."""
        cdef int64_t* heard = &self.heard[view.router]
        cdef Fact* fact
        while heard[0] < self.last:
            fact = &self.facts[heard[0] & (self.room - 1)]
            if fact.request.router != view.router:
                if not passed(self.sync, fact.at, self.now):
                    break
                if fact.kind == STARTS:
                    view.take(&fact.request, True, True)
                elif fact.kind == PREFILL_ENDS:
                    view.prefill_ends(&fact.request)
                else:
                    view.ends(&fact.request)
            heard[0] += 1

    cdef int note(self, const Routed* request, FactKind kind) except -1 nogil:
        """Have other routers than the one that sent it hear of a change of a request, now."""
        cdef Fact* fact
        if not self.tells:
            return 0
        if self.last - self.first == self.room:
            self.make_room()
        fact = &self.facts[self.last & (self.room - 1)]
        fact.request = request[0]
        fact.at = self.now
        fact.kind = kind
        self.last += 1
        return 0

    cdef int make_room(self) except -1 nogil:
        """Forget what all views have heard of by now, those of routers that are never asked included; twice the ring
        if that is little."""
        cdef int32_t i
        cdef int64_t at
        cdef Fact* facts
        self.first = self.last
        for i in range(self.count):
            self.hear(<LoadView>self.view_of[i])
            self.first = min(self.first, self.heard[i])
        if 2 * (self.last - self.first) <= self.room:
            return 0
        facts = <Fact*>calloc(2 * self.room, sizeof(Fact))
        if facts == NULL:
            no_memory("load ledger", 2 * self.room)
        for at in range(self.first, self.last):
            facts[at & (2 * self.room - 1)] = self.facts[at & (self.room - 1)]
        free(self.facts)
        self.facts = facts
        self.room *= 2
        return 0

    cdef int add_places(self) except -1 nogil:
        """Have twice the places for requests in flight."""
        cdef int64_t at, places = max(<int64_t>FIRST_ROOM, 2 * self.places)
        cdef Flight* flights = <Flight*>realloc(self.flights, places * sizeof(Flight))
        if flights == NULL:
            no_memory("load ledger", places)
        self.flights = flights
        for at in range(places - 1, self.places - 1, -1):
            flights[at].next = self.free_place
            self.free_place = at
        self.places = places
        return 0

    cdef Flight* flight_of(self, int64_t handle) except NULL nogil:
        if not 0 <= handle < self.places or self.flights[handle].next != IN_FLIGHT:
            with gil:
                raise ValueError(f"no request in flight has the handle {handle}")
        return &self.flights[handle]

    # -- from Python ---------------------------------------------------------------------------

    def look(self, LoadView view, int64_t request, int64_t time_ns):
        """Bring ``view`` to the time at which its router decides on the request of this number."""
        self.advance(view, Moment(request, time_ns))

    def send(self, LoadView view, int64_t request, int64_t time_ns, *, int32_t worker, int64_t tokens, int32_t blocks,
             int32_t fresh):
        """The router sent the request out, of whose blocks ``fresh`` are to be computed; returns its handle."""
        cdef Routed record = Routed(Moment(request, time_ns), tokens, blocks, fresh, worker, view.router)
        return self.assign(view, &record)

    def end_prefill(self, int64_t handle, int64_t time_ns):
        """The request's prefill has ended."""
        self.prefill_ended(handle, Moment(0, time_ns))

    def end(self, int64_t handle, int64_t time_ns):
        """The request has ended."""
        self.ended(handle, Moment(0, time_ns))

    @property
    def kept(self):
        """Changes of requests for which there is room in memory."""
        return self.room
