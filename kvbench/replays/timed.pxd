from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from kvbench.replays.timedframe cimport TimedFrame
from kvbench.routing.load cimport Moment
from kvbench.serving.links cimport Transfers
from kvbench.serving.holdings cimport Observer
from kvbench.serving.request cimport Request
from kvbench.serving.traffic cimport Traffic


cdef class TimedReplay(TimedFrame):
    cdef readonly Traffic traffic
    cdef Transfers transfers
    cdef list workers
    cdef PyObject** worker_of
    cdef int64_t concurrency      # requests in flight at most, or 0: they arrive by the clock
    cdef readonly int64_t in_flight, arrived, ended
    cdef int64_t stop_ns, stall_steps
    cdef int64_t sample_ns, next_sample_ns
    cdef readonly str stopped     # why, or empty
    cdef object sampler, callback
    cdef int64_t calls            # alarms set for the callback
    cdef bint is_stopped
    cdef int64_t now_ns_of_one

    cdef int loop(self, bint final) except -1 nogil
    cdef int64_t next_arrival_ns(self) noexcept nogil
    cdef int arrive_next(self) except -1 nogil
    cdef int start(self, Request* request) except -1 nogil
    cdef int ring(self) except -1 nogil
    cdef int move(self) except -1 nogil
    cdef int take_sample(self) except -1 nogil
    cdef int give_up(self, bint is_late) except -1 nogil
    cdef void enter(self, Request* request) noexcept nogil
    cdef int prefill_is_over(self, Request* request) except -1 nogil
    cdef int look_up(self, Request* request) except -1 nogil
    cdef int store(self, Request* request) except -1 nogil
    cdef int tell(self, Request* request) except -1 nogil
    cdef int count_answer(self, Request* request) except -1 nogil
    cdef check_all(self)
    cdef int pass_on(self) except -1 nogil
    cdef Moment moment_of_request(self, const Request* request) noexcept nogil
    cdef int end(self, Request* request) except -1 nogil


cdef class Recorder(Observer):
    cdef TimedReplay replay
