from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.copies cimport CopyStore


# What is under way into or out of a slot.
cdef struct Flight:
    int32_t write          # number of the write that fills it, or -1
    int32_t reads          # writes under way that read from it
    int64_t request        # while it is pending: index of the request that gave it the slot
    uint8_t pending        # lookups pass it by: its block is computed, fetched or written at the moment
    uint8_t unannounced    # its INSERT is recorded when it has landed


cdef struct Filled:
    uint64_t key
    int32_t slot
    int32_t cause


# Why a block is stored: it is computed, or a tier below delivered it, or the tier above gave it up.
cdef enum FillCause:
    BY_COMPUTING = 0
    BY_PROMOTION = 1
    BY_DEMOTION = 2


cdef class FlightStore(CopyStore):
    cdef Flight* flights            # slot -> flight, or NULL: nothing takes time (order replay)
    cdef readonly int32_t pending   # slots that lookups pass by
    cdef readonly int32_t unannounced
    cdef Filled* filled             # slots filled since they were last looked at
    cdef int32_t filled_count, filled_room
    cdef uint64_t* lost             # keys of blocks evicted while a write read from them
    cdef int32_t lost_count, lost_room
    cdef readonly int32_t held_back  # chunks of the capacity that running requests use for no block of the cache

    cdef int note_filled(self, int32_t slot, int cause) except -1 nogil
    cdef int note_lost(self, const int32_t* victims, int32_t n) except -1 nogil
    cdef void depart(self, int32_t slot) noexcept nogil
    cdef int land(self, int32_t slot) except -1 nogil
    cdef void hush(self, int32_t slot) noexcept nogil
    cdef int announce(self, int32_t slot) except -1 nogil
    cdef int abandon(self, int32_t slot, int32_t pins) except -1 nogil
    cdef void pin_slot(self, int32_t slot) noexcept nogil
    cdef void unpin_slot(self, int32_t slot) noexcept nogil
    cdef int hold_back(self, int32_t chunks) except -1 nogil
    cdef void give_back(self, int32_t chunks) noexcept nogil
