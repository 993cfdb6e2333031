from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport EventLog
from kvbench.cache.stack cimport TierStack
from kvbench.cache.stacked cimport StackedTier
from kvbench.serving.compute cimport ComputeModel
from kvbench.serving.request cimport Pin, Request
from kvbench.serving.traffic cimport Traffic, Write

# What came of the try to give a request its blocks.
cdef enum Admission:
    STARTS = 0         # it has them all
    FETCHES = 1        # they are on their way
    NO_ROOM_NOW = 2
    NO_FETCH_NOW = 3   # as many are fetching as may
    SHARED_SOON = 4    # another one computes what it needs next
    NO_SEAT_NOW = 5    # there is nothing to fetch, and the step takes no more


# Hears what happens to requests, and writes it down.
cdef class Observer:
    cdef int tell_facts(self, Request* request) except -1 nogil
    cdef int looked_up(self, Request* request) except -1 nogil
    cdef int committed(self, Request* request) except -1 nogil
    cdef int changed(self) except -1 nogil
    cdef int prefill_ended(self, Request* request) except -1 nogil
    cdef int answer_stored(self, Request* request) except -1 nogil
    cdef int ended(self, Request* request) except -1 nogil


cdef class Mover:
    cdef TierStack stack
    cdef Traffic traffic
    cdef Observer observer
    cdef EventLog log
    cdef ComputeModel compute
    cdef readonly int32_t worker
    cdef readonly int64_t block_tokens    # of a block of the trace
    cdef readonly int64_t chunk_tokens    # of a chunk of the GPU
    cdef readonly int32_t ranks           # stores of the GPU tier
    cdef bint share, cheaper
    cdef int64_t* chunk_bytes             # level -> bytes of a chunk in one store
    cdef int32_t* reads                   # level -> path of reads, or -1: they take no time
    cdef int32_t* writes_to               # level -> path of writes, or -1
    cdef int64_t mark                     # size of the log before the operation at hand

    cdef PyObject* gpu_at(self, int32_t rank) noexcept nogil
    cdef PyObject* gpu_above(self, PyObject* tier, int32_t level) noexcept nogil
    cdef bint fits_ever(self, int64_t tokens) noexcept nogil
    cdef int64_t chunks_for(self, int64_t tokens) noexcept nogil
    cdef int admit(self, Request* request, bint may_fetch, bint may_start) except -1 nogil
    cdef int32_t worth_loading(self, Request* request, int32_t hit) except -1 nogil
    cdef bint needs_fetch(self, int32_t hit) noexcept nogil
    cdef bint is_shared_soon(self, Request* request, int32_t hit) noexcept nogil
    cdef bint has_room(self, Request* request) noexcept nogil
    cdef int take(self, Request* request, int32_t asked) except -1 nogil
    cdef int pin_gpu(self, Request* request) except -1 nogil
    cdef int pin_sources(self, Request* request) except -1 nogil
    cdef int32_t pins_in(self, const Request* request, PyObject* tier) noexcept nogil
    cdef int add_pin(self, Pin** pins, int32_t* count, int32_t* room, PyObject* tier, int32_t slot, int32_t chunk,
                     int32_t cause) except -1 nogil
    cdef int depart_filled(self, Request* request) except -1 nogil
    cdef int depart_below(self, PyObject* tier, int32_t level, int32_t* writes) except -1 nogil
    cdef int withdraw_events(self) except -1 nogil
    cdef int lose_unwritten(self) except -1 nogil
    cdef int lose(self, uint64_t key) except -1 nogil
    cdef int start_fetch(self, Request* request) except -1 nogil
    cdef int fetch_ended(self, Request* request) except -1 nogil
    cdef int start_writes(self, Request* request, int cause) except -1 nogil
    cdef int start_write(self, int32_t write) except -1 nogil
    cdef int write_ended(self, int32_t write) except -1 nogil
    cdef void unlink_write(self, Request* request, int32_t write) noexcept nogil
    cdef int note_reads(self, const Write* record, int32_t by) except -1 nogil
    cdef int land_computed(self, Request* request) except -1 nogil
    cdef int grow(self, Request* request) except -1 nogil
    cdef int settle(self) except -1 nogil
    cdef int release(self, Request* request) except -1 nogil
    cdef int store_answer(self, Request* request) except -1 nogil
    cdef int give_up_writes(self, Request* request) except -1 nogil
    cdef int64_t held_tokens(self) noexcept nogil
    cdef int64_t capacity_tokens(self) noexcept nogil
