"""The event log: every change of residency, in order (semantics §7).

Folding the log from the start gives the state at every point (see :mod:`kvbench.cache.fold`). The
KVBM index, the events file and the tests all read this one log.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kvbench.memory cimport no_memory

EVENT_FIELDS = (
    ("request", "<i8"), ("sequence", "<i8"), ("key", "<u8"), ("parent", "<u8"), ("worker", "<i4"),
    ("store", "<i4"), ("source_store", "<i4"), ("kind", "u1"), ("reason", "u1"), ("has_parent", "u1"),
    ("tier", "u1"), ("source", "u1"), ("padding", "V7"),
)
"""Layout of one record of :meth:`EventLog.tobytes`, as a NumPy structured type."""

EVENT_KINDS = ("INSERT", "DELETE", "MOVE", "COPY", "CLEAR")
EVENT_REASONS = ("computed", "evicted", "removed", "promoted", "demoted", "watermark", "fault", "restart",
                 "nameless", "recomputed")


@cython.final
cdef class EventLog:
    """A growing array of events; ``clear`` after reading keeps it small."""

    def __cinit__(self):
        self.events = NULL
        self.size = 0
        self.room = 0

    def __dealloc__(self):
        free(self.events)
        free(self.sequences)

    cdef Event* append(self, int32_t worker) except NULL nogil:
        """A new event of ``worker`` at the end, numbered; the caller fills in the rest."""
        cdef int64_t room
        cdef Event* event
        if self.size == self.room:
            room = max(<int64_t>1024, 2 * self.room)
            event = <Event*>realloc(self.events, room * sizeof(Event))
            if event == NULL:
                no_memory("event log", room)
            self.events = event
            self.room = room
        if worker >= self.workers:
            self.meet(worker)
        event = &self.events[self.size]
        memset(event.padding, 0, sizeof(event.padding))
        event.worker = worker
        event.sequence = self.sequences[worker]
        event.source = NO_TIER
        event.source_store = -1
        self.sequences[worker] += 1
        self.size += 1
        return event

    cdef int meet(self, int32_t worker) except -1 nogil:
        cdef int64_t* sequences = <int64_t*>realloc(self.sequences, (worker + 1) * sizeof(int64_t))
        if sequences == NULL:
            no_memory("event log", worker)
        memset(sequences + self.workers, 0, (worker + 1 - self.workers) * sizeof(int64_t))
        self.sequences = sequences
        self.workers = worker + 1
        return 0

    cdef void forget(self) noexcept nogil:
        self.forgotten += self.size
        self.size = 0

    cdef void withdraw(self, int64_t first, int32_t worker) noexcept nogil:
        """Take out the events from position ``first`` on, all of which are of ``worker``, that have been given the
        kind WITHDRAWN; the others move up and are numbered anew."""
        cdef int64_t i, kept = first
        for i in range(first, self.size):
            if self.events[i].kind == WITHDRAWN:
                continue
            if kept < i:
                self.events[kept] = self.events[i]
            self.events[kept].sequence = self.sequences[worker] - (self.size - first) + (kept - first)
            kept += 1
        if self.size > first:
            self.sequences[worker] -= self.size - kept
        self.size = kept

    cpdef clear(self):
        """Forget all events; sequence numbers go on."""
        self.forget()

    def __len__(self):
        return self.size

    def tobytes(self, int64_t first=0):
        """All events from number ``first`` on, as packed records of the layout ``EVENT_FIELDS``."""
        first = min(max(first, <int64_t>0), self.size)
        return (<char*>(self.events + first))[:(self.size - first) * sizeof(Event)]
