"""The event log: every change of residency, in order.

Folding the log from the start gives the state at every point. The KVBM index, the events file
and the tests all read this one log.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc

from kvbench.memory cimport no_memory

EVENT_FIELDS = (
    ("request", "<i8"), ("sequence", "<i8"), ("key", "<u8"), ("parent", "<u8"), ("worker", "<i4"),
    ("kind", "u1"), ("reason", "u1"), ("has_parent", "u1"), ("tier", "u1"),
)
"""Layout of one record of :meth:`EventLog.tobytes`, as a NumPy structured type."""

EVENT_KINDS = ("INSERT", "DELETE")
EVENT_REASONS = ("computed", "evicted", "removed")


@cython.final
cdef class EventLog:
    """A growing array of events; ``clear`` after reading keeps it small."""

    def __cinit__(self):
        self.events = NULL
        self.size = 0
        self.room = 0

    def __dealloc__(self):
        free(self.events)

    cdef Event* append(self) except NULL nogil:
        """A new event at the end, to be filled in by the caller."""
        cdef int64_t room
        cdef Event* events
        if self.size == self.room:
            room = max(<int64_t>1024, 2 * self.room)
            events = <Event*>realloc(self.events, room * sizeof(Event))
            if events == NULL:
                no_memory("event log", room)
            self.events = events
            self.room = room
        self.size += 1
        return &self.events[self.size - 1]

    cpdef clear(self):
        """Forget all events; sequence numbers go on."""
        self.size = 0

    def __len__(self):
        return self.size

    def tobytes(self):
        """All events as packed records of the layout ``EVENT_FIELDS``."""
        return (<char*>self.events)[:self.size * sizeof(Event)]
