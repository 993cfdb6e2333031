from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.events cimport EventLog
from kvbench.cache.seen cimport Seen
from kvbench.cache.tier cimport Tier
from kvbench.eviction.view cimport RequestFacts
from kvbench.routing.dispatcher cimport Dispatcher
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.load cimport Moment

cdef enum:
    FACT_COUNT = 6


# One request's counts. A row is one cache line, written once.
cdef struct Row:
    int32_t worker
    int32_t blocks
    int32_t cacheable_blocks
    int32_t hit_blocks
    int32_t resident_blocks
    int32_t infinite_hit_blocks
    int32_t best_blocks
    int32_t predicted_blocks
    int32_t stored_blocks
    int32_t evicted_blocks
    int32_t miss_first_seen_blocks
    int32_t miss_evicted_blocks
    int32_t miss_other_worker_blocks
    int32_t miss_gap_blocks
    int32_t miss_truncated_blocks
    int32_t truncated_blocks


cdef class OrderReplay:
    cdef list places
    cdef PyObject** place_of
    cdef Dispatcher dispatcher
    cdef KvbmIndex index     # the dispatcher's true one
    cdef EventLog log
    cdef Seen seen
    cdef bint keep_events
    cdef readonly int64_t request
    cdef int64_t handle      # of the dispatcher's last decision
    cdef uint8_t* states
    cdef int64_t room
    cdef int64_t heard       # events of the log, from its start, that the index knows of
    # Of the batch being served, or NULL.
    cdef const int64_t* time_ns
    cdef const int32_t* facts
    cdef const int32_t* next_use
    cdef const int32_t* outputs
    cdef const int32_t* limits
    cdef const uint8_t* partials

    cdef check_places(self)
    cdef int hear(self, int64_t i) except -1 nogil
    cdef Moment moment_of(self, int64_t i) noexcept nogil
    cdef int check_events(self, int64_t first) except -1
    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int reserve_at(self, PyObject* place, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int serve_all(self, const uint64_t* keys, const int64_t* offsets, const int32_t* cacheable,
                       int64_t n, Row* rows) except -1 nogil
    cdef int serve(self, const uint64_t* keys, int32_t n, int64_t readable, Row* row, int64_t i,
                   int64_t offset) except -1 nogil
    cdef int serve_at(self, PyObject* place, const uint64_t* keys, int32_t n, int32_t stored, int64_t readable,
                      Row* row, int64_t i, int64_t offset) except -1 nogil
    cdef int32_t choose_worker(self, const uint64_t* keys, int32_t n, Row* row, int64_t i) except -1 nogil
    cdef int32_t limit_of(self, int64_t i, int32_t n) noexcept nogil
    cdef int note_outputs(self, const uint64_t* keys, const int32_t* slots, int32_t n, int32_t stored) except -1 nogil
    cdef void tell_facts(self, RequestFacts* facts, int64_t i) noexcept nogil
    cdef int explain(self, const uint64_t* keys, int32_t n, const int32_t* slots, Row* row) except -1 nogil
    cdef int note_truncated(self, const uint64_t* keys, int32_t n, Tier tier) except -1 nogil
    cdef int fit_states(self, int64_t n) except -1 nogil
