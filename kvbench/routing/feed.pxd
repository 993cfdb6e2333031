from libc.stdint cimport int32_t, int64_t, uint8_t

from kvbench.cache.events cimport Event
from kvbench.routing.index cimport KvbmIndex

cdef enum:
    NO_EPOCH = -1


# Numbers first … end-1 that have not come.
cdef struct Range:
    int64_t first
    int64_t end


# What has been heard of one source: a worker, or a store that several share.
cdef struct Source:
    int64_t next           # the number that is due
    int32_t epoch
    int32_t ranges, room
    Range* missing         # rising
    uint8_t stale


cdef class EventFeed:
    cdef readonly KvbmIndex index
    cdef Source* sources
    cdef int32_t workers
    cdef readonly int32_t count      # of sources
    cdef int32_t* first_source       # tier -> number of the source of its first shared store
    cdef readonly int64_t applied, duplicates, gaps, missing, late, restarts, outdated

    cdef int32_t source_of(self, int32_t tier, int32_t store) noexcept nogil
    cdef int receive_event(self, const Event* event, int32_t epoch) except -1 nogil
    cdef int restart(self, int32_t worker, int32_t epoch) except -1 nogil
    cdef int note_gap(self, Source* source, int64_t first, int64_t end) except -1 nogil
    cdef int make_room(self, Source* source) except -1 nogil
    cdef int fill_gap(self, Source* source, int64_t number) except -1 nogil
    cdef int check(self, const Event* event) except -1
    cdef int check_place(self, int32_t tier, int32_t store) except -1
