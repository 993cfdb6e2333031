from libc.stdint cimport int32_t, int64_t

from kvbench.serving.compute cimport Chunk, ComputeModel, Step
from kvbench.serving.holdings cimport Observer
from kvbench.serving.mover cimport Mover
from kvbench.serving.request cimport Queue, Request
from kvbench.serving.traffic cimport Traffic

# Kinds of alarms.
cdef enum AlarmKind:
    STEP_ENDS = 0
    ARRIVES = 1
    CALLS = 2

cdef enum:
    LOOK_AHEAD = 256   # waiting requests that are looked at when a step is built
    RECENT = 50        # first tokens that the recent latency of a worker is of


cdef class Batching:
    cdef readonly int32_t number
    cdef Mover mover
    cdef Traffic traffic
    cdef Observer observer
    cdef ComputeModel compute
    cdef readonly int64_t batch_tokens
    cdef readonly int32_t sequences, fetches
    cdef readonly bint chunked, blocking, decodes_answers
    cdef int64_t step_overhead_ns, rebuild_ns
    cdef Queue waiting, ready, prefilling, holding
    cdef Request** heap           # decoding requests by the decode step at which something happens to them
    cdef int32_t heap_count
    cdef int32_t decoding
    cdef int32_t fetching, writing
    cdef Request** growing        # scratch
    cdef Chunk* chunks
    cdef Request** chunk_of
    cdef int32_t chunk_count
    cdef int64_t decode_context   # tokens of context of all that decode
    cdef int64_t decode_step      # decode steps so far
    cdef readonly bint busy
    cdef bint rebuilt             # the batch is another than that of the last step
    cdef bint step_is_rebuilt     # that of the step under way is
    cdef int64_t step_started_ns
    cdef int64_t step_number      # that of the step under way; an alarm of another number is no longer its end
    cdef int64_t budget           # tokens that the step under way could still compute as it began
    cdef int64_t stepped_ns       # time in steps that have ended
    cdef readonly int64_t steps, prefill_tokens, decode_tokens, preemptions, rebuilds
    cdef readonly int64_t idle_steps   # since a request got a token, or ended
    cdef readonly int64_t ended
    cdef int64_t recent[RECENT]
    cdef int64_t first_tokens

    cdef bint has_seat(self) noexcept nogil
    cdef int begin_step(self) except -1 nogil
    cdef int fill_step(self) except -1 nogil
    cdef int set_end(self) except -1 nogil
    cdef int64_t add_chunk(self, Request* request, int64_t budget) noexcept nogil
    cdef int64_t start_ready(self, int64_t budget) except -1 nogil
    cdef int64_t admit_waiting(self, int64_t budget) except -1 nogil
    cdef int64_t take_in(self, Request* request, int admission, int64_t budget) except -1 nogil
    cdef void pass_state(self, Request* request, int state) noexcept nogil
    cdef int64_t generated_by(self, const Request* request) noexcept nogil
    cdef void plan_due(self, Request* request) noexcept nogil
    cdef int64_t stop_decoding(self, Request* request) noexcept nogil
    cdef int heap_push(self, Request* request) except -1 nogil
    cdef void heap_remove(self, Request* request) noexcept nogil
    cdef void sift_up(self, int32_t at) noexcept nogil
    cdef void sift_down(self, int32_t at) noexcept nogil
