from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.replays.tiered cimport TieredReplay
from kvbench.serving.clock cimport Clock
from kvbench.serving.request cimport Queue, Request


# One batch of requests, some of which have not ended. Its arrays are kept alive by `TimedFrame.arrays`.
cdef struct Batch:
    const uint64_t* keys
    const int64_t* offsets
    const int32_t* cacheable
    const int32_t* outputs
    const int32_t* limits
    const int32_t* facts
    const int64_t* arrivals
    const int64_t* prompts
    const int64_t* answers
    const int64_t* waits
    const int32_t* sessions
    int32_t* rows
    int32_t* tier_rows
    int64_t* times
    int64_t size
    int64_t next          # its next request to arrive
    int64_t left          # of its requests, those that have not ended


# The events before number `stop` happened by `time_ns`.
cdef struct Heard:
    int64_t stop, time_ns


cdef class Slab:
    cdef Request* records


cdef class TimedFrame(TieredReplay):
    cdef Clock clock
    cdef dict arrays
    cdef Batch* batches           # a ring, by number
    cdef int64_t room, first_batch, next_batch, reading
    cdef Request* pool            # unused records
    cdef list slabs
    cdef Queue* turns             # session -> its requests that wait for the one before
    cdef int32_t sessions
    cdef Heard* heards
    cdef int64_t heard_count, heard_room

    cdef Request* make_request(self, int64_t number, int64_t i) except NULL
    cdef clear_rows(self, Batch* batch)
    cdef line_up(self, int64_t number)
    cdef make_room(self)
    cdef int add_slab(self) except -1
    cdef Batch* batch_of(self, int64_t number) noexcept nogil
    cdef int note_time(self) except -1 nogil
