"""Blocks under way: what a tier knows of time, in timed replay.

A block that is being computed, fetched or written has its slot already, so that room is made for it once,
and in the order in which an order replay makes it. Until it has landed it is **pending**: lookups pass it by,
it is pinned, and no INSERT has told of it. In order replay there are no flights and nothing here costs anything.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from kvbench.cache.copies cimport CopyStore
from kvbench.cache.events cimport NO_EVENT, REMOVED
from kvbench.memory cimport no_memory


cdef class FlightStore(CopyStore):
    """Base of :class:`kvbench.cache.stacked.StackedTier`."""

    def __dealloc__(self):
        free(self.flights)
        free(self.filled)
        free(self.lost)

    def keep_time(self):
        """From now on blocks take time to come and go."""
        cdef int32_t slot
        self.flights = <Flight*>calloc(self.size, sizeof(Flight))
        if self.flights == NULL:
            no_memory("tier", self.size)
        for slot in range(self.size):
            self.flights[slot].write = -1

    cdef move_slots(self, int64_t size):
        cdef Flight* flights
        cdef int64_t slot
        if self.flights != NULL:
            flights = <Flight*>realloc(self.flights, size * sizeof(Flight))
            if flights == NULL:
                no_memory("tier", size)
            self.flights = flights
            for slot in range(self.size, size):
                flights[slot].write = -1
                flights[slot].reads = 0
                flights[slot].pending = flights[slot].unannounced = 0
        CopyStore.move_slots(self, size)

    # -- what the operation at hand did --------------------------------------------------------

    cdef int note_filled(self, int32_t slot, int cause) except -1 nogil:
        """A block was given a slot; whoever runs the clock looks at all of these afterwards."""
        cdef Filled* filled
        if self.filled_count == self.filled_room:
            filled = <Filled*>realloc(self.filled, (2 * self.filled_room + 64) * sizeof(Filled))
            if filled == NULL:
                no_memory("tier", self.filled_room)
            self.filled = filled
            self.filled_room = 2 * self.filled_room + 64
        filled = &self.filled[self.filled_count]
        filled.slot = slot
        filled.key = self.keys[slot]
        filled.cause = cause
        self.filled_count += 1
        return 0

    cdef int note_lost(self, const int32_t* victims, int32_t n) except -1 nogil:
        """Blocks leave; remember those that a write still reads from."""
        cdef int32_t i
        cdef uint64_t* lost
        for i in range(n):
            if self.flights[victims[i]].reads == 0:
                continue
            if self.lost_count == self.lost_room:
                lost = <uint64_t*>realloc(self.lost, (2 * self.lost_room + 64) * sizeof(uint64_t))
                if lost == NULL:
                    no_memory("tier", self.lost_room)
                self.lost = lost
                self.lost_room = 2 * self.lost_room + 64
            self.lost[self.lost_count] = self.keys[victims[i]]
            self.lost_count += 1
            self.flights[victims[i]].reads = 0
        return 0

    # -- one block -----------------------------------------------------------------------------

    cdef void depart(self, int32_t slot) noexcept nogil:
        """The block in a slot is under way from now on."""
        self.flights[slot].pending = 1
        self.flights[slot].request = self.view.request.index
        self.pending += 1

    cdef int land(self, int32_t slot) except -1 nogil:
        """It has arrived: lookups find it."""
        self.flights[slot].pending = 0
        self.flights[slot].write = -1
        self.pending -= 1
        if self.flights[slot].unannounced:
            self.flights[slot].unannounced = 0
            self.unannounced -= 1
            return self.announce(slot)
        return 0

    cdef void hush(self, int32_t slot) noexcept nogil:
        """Its INSERT has been taken back, until it lands."""
        self.flights[slot].unannounced = 1
        self.unannounced += 1

    cdef int announce(self, int32_t slot) except -1 nogil:
        """Tell the log of a block that was stored some time ago."""
        return 0

    cdef int abandon(self, int32_t slot, int32_t pins) except -1 nogil:
        """It will not arrive: its slot is emptied, whose only ``pins`` are those of the caller."""
        cdef bint told = not self.flights[slot].unannounced
        self.view.request.index = self.flights[slot].request  # others have used the store since
        self.unannounced -= not told
        self.flights[slot].pending = self.flights[slot].unannounced = 0
        self.flights[slot].write = -1
        self.flights[slot].reads = 0
        self.pending -= 1
        self.pinned -= pins > 0
        self.refs[slot] = 1
        if self.limited:
            self.policy.remove_slots(&slot, 1)
        self.refs[slot] = 0
        return self.release_slots(&slot, 1, REMOVED if told else NO_EVENT)

    cdef void pin_slot(self, int32_t slot) noexcept nogil:
        self.pinned += self.refs[slot] == 1
        self.refs[slot] += 1

    cdef void unpin_slot(self, int32_t slot) noexcept nogil:
        self.view.stirs += 1
        self.refs[slot] -= 1
        self.pinned -= self.refs[slot] == 1

    # -- room for what is no block of the cache ------------------------------------------------

    cdef int hold_back(self, int32_t chunks) except -1 nogil:
        """Use so many chunks of the capacity for something else; the caller has seen that they can be free."""
        cdef int32_t over
        if not self.limited or chunks == 0:
            return 0
        over = chunks - (self.limit - self.used)
        if over > 0:
            if over > self.scratch:
                self.fit_scratch(over)
            self.evict(over, self.sweep)
        self.limit -= chunks
        self.held_back += chunks
        return 0

    cdef void give_back(self, int32_t chunks) noexcept nogil:
        if self.limited:
            self.limit += chunks
            self.held_back -= chunks
