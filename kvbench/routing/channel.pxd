from libc.stdint cimport int32_t, int64_t, uint8_t

from kvbench.cache.events cimport Event, EventLog
from kvbench.rng cimport Stream
from kvbench.routing.feed cimport EventFeed
from kvbench.routing.load cimport Moment, Span


# Events of one source that travel together.
cdef struct Message:
    Moment sent
    Event* events
    int32_t count, room
    int32_t worker, epoch


# What a source has to send.
cdef struct Outbox:
    Message waiting        # events collected; sent: when the first one came
    Message held           # a message that the next one overtakes, or none
    int64_t numbered       # events of this life so far
    bint listed            # it is among those that collect
    int32_t epoch


cdef class EventChannel:
    cdef readonly EventFeed feed
    cdef Span coalesce, delay, cycle
    cdef int64_t batch
    cdef double loss, duplication, reorder
    cdef Stream stream
    cdef Outbox* outboxes
    cdef int32_t sources
    cdef int32_t* collecting         # a ring of the sources that have events waiting, in the order of their first
    cdef int64_t first_collecting, count_collecting
    cdef Message* flight             # a ring of messages under way
    cdef int64_t room, first, count
    cdef int32_t read                # events of the first one that have been read
    cdef Moment polled
    cdef readonly int64_t messages, lost_messages, lost_events, duplicated_messages, reordered_messages, cycles

    cdef int collect(self, EventLog log, int64_t start, Moment now) except -1 nogil
    cdef int collect_event(self, const Event* event, Moment now) except -1 nogil
    cdef int put(self, int32_t source, const Event* event, Moment now) except -1 nogil
    cdef bint starts_again(self, EventLog log, int64_t at) noexcept nogil
    cdef int advance(self, Moment now) except -1 nogil
    cdef int send_due(self, Moment now) except -1 nogil
    cdef int send(self, int32_t worker, Moment at) except -1 nogil
    cdef int post(self, Message* message) except -1 nogil
    cdef int read_events(self, Moment now, int64_t most) except -1 nogil
    cdef int64_t allowance(self, Moment now) noexcept nogil
    cdef bint chance(self, double share) noexcept nogil
    cdef int grow(self) except -1 nogil
