from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.replays.tiered cimport TieredReplay
from kvbench.routing.load cimport Moment
from kvbench.serving.clock cimport Clock
from kvbench.serving.links cimport Transfers
from kvbench.serving.mover cimport Observer
from kvbench.serving.request cimport Queue, Request
from kvbench.serving.traffic cimport Traffic


# One batch of requests, some of which have not ended. Its arrays are kept alive by `TimedReplay.arrays`.
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


cdef class TimedReplay(TieredReplay):
    cdef readonly Traffic traffic
    cdef Clock clock
    cdef Transfers transfers
    cdef list workers
    cdef PyObject** worker_of
    cdef dict arrays
    cdef Batch* batches           # a ring, by number
    cdef int64_t room, first_batch, next_batch, reading
    cdef Request* pool            # unused records
    cdef list slabs
    cdef int64_t concurrency      # requests in flight at most, or 0: they arrive by the clock
    cdef readonly int64_t in_flight, arrived, ended
    cdef int64_t stop_ns, stall_steps
    cdef int64_t sample_ns, next_sample_ns
    cdef readonly str stopped     # why, or empty
    cdef Queue* turns             # session -> its requests that wait for the one before
    cdef int32_t sessions
    cdef object sampler, callback
    cdef int64_t calls            # alarms set for the callback
    cdef Heard* heards
    cdef int64_t heard_count, heard_room
    cdef bint is_stopped
    cdef int64_t now_ns_of_one

    cdef Request* make_request(self, int64_t number, int64_t i) except NULL
    cdef clear_rows(self, Batch* batch)
    cdef line_up(self, int64_t number)
    cdef make_room(self)
    cdef int add_slab(self) except -1
    cdef Batch* batch_of(self, int64_t number) noexcept nogil
    cdef int loop(self, bint final) except -1 nogil
    cdef int64_t next_arrival_ns(self) noexcept nogil
    cdef int arrive_next(self) except -1 nogil
    cdef int start(self, Request* request) except -1 nogil
    cdef int ring(self) except -1 nogil
    cdef int move(self) except -1 nogil
    cdef int take_sample(self) except -1 nogil
    cdef int stop_at_limit(self) except -1 nogil
    cdef int stop_stalled(self) except -1 nogil
    cdef void enter(self, Request* request) noexcept nogil
    cdef int prefill_is_over(self, Request* request) except -1 nogil
    cdef int look_up(self, Request* request) except -1 nogil
    cdef int store(self, Request* request) except -1 nogil
    cdef int tell(self, Request* request) except -1 nogil
    cdef int count_answer(self, Request* request) except -1 nogil
    cdef int note_time(self) except -1 nogil
    cdef check_all(self)
    cdef int pass_on(self) except -1 nogil
    cdef Moment moment_of_request(self, const Request* request) noexcept nogil
    cdef int end(self, Request* request) except -1 nogil


cdef class Recorder(Observer):
    cdef TimedReplay replay


cdef class Slab:
    cdef Request* records
