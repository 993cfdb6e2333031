"""What is on its way between tiers: the clock, the transfers, and the writes into lower tiers."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t
from libc.stdlib cimport free, realloc

from kvbench.cache.flights cimport FlightStore
from kvbench.memory cimport no_memory
from kvbench.serving.clock cimport Clock
from kvbench.serving.links cimport Transfers


cdef class Traffic:
    """One for all workers, since workers may share tiers and links."""

    def __cinit__(self, Clock clock, Transfers transfers):
        self.clock = clock
        self.transfers = transfers
        self.unused = -1

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.write_room):
            free(self.writes[i].entries)
        free(self.writes)

    cdef int32_t new_write(self) except -1 nogil:
        """An empty record of a write."""
        cdef int32_t i, room = 2 * self.write_room + 16
        cdef Write* writes
        if self.unused < 0:
            writes = <Write*>realloc(self.writes, room * sizeof(Write))
            if writes == NULL:
                no_memory("writes", room)
            for i in range(self.write_room, room):
                writes[i].entries = NULL
                writes[i].room = 0
                writes[i].next = i + 1 if i + 1 < room else -1
            self.unused = self.write_room
            self.writes = writes
            self.write_room = room
        i = self.unused
        self.unused = self.writes[i].next
        self.writes[i].count = self.writes[i].length = 0
        self.writes[i].next = -1
        self.writes[i].handle = -1
        return i

    cdef int add_slot(self, int32_t write, PyObject* tier, int32_t slot, int32_t chunk, int32_t position) except -1 nogil:
        cdef Write* record = &self.writes[write]
        cdef Entry* entry
        if record.count == record.room:
            entry = <Entry*>realloc(record.entries, (2 * record.room + 16) * sizeof(Entry))
            if entry == NULL:
                no_memory("write", record.room)
            record.entries = entry
            record.room = 2 * record.room + 16
        entry = &record.entries[record.count]
        entry.tier = tier
        entry.slot = slot
        entry.chunk = chunk
        entry.position = position
        record.count += 1
        record.length = max(record.length, position + 1)
        (<FlightStore>tier).flights[slot].write = write
        return 0

    cdef void drop_write(self, int32_t write) noexcept nogil:
        """Its record may be used again."""
        self.writes[write].next = self.unused
        self.unused = write

    cdef int land_write(self, int32_t write) except -1 nogil:
        """All of it has been written."""
        cdef Write* record = &self.writes[write]
        cdef Entry* entry
        cdef int32_t k
        for k in range(record.count):
            entry = &record.entries[k]
            if entry.slot >= 0:
                (<FlightStore>entry.tier).worker = record.worker  # whose event it is; others have used the store since
                (<FlightStore>entry.tier).land(entry.slot)
                (<FlightStore>entry.tier).unpin_slot(entry.slot)
        return 0
