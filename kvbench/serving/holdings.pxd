from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kvbench.cache.events cimport EventLog
from kvbench.cache.stack cimport TierStack
from kvbench.serving.compute cimport ComputeModel
from kvbench.serving.request cimport Pin, Request
from kvbench.serving.traffic cimport Traffic

cdef enum:
    MOST_LEVELS = 64


# Hears what happens to requests, and writes it down.
cdef class Observer:
    cdef int tell_facts(self, Request* request) except -1 nogil
    cdef int looked_up(self, Request* request) except -1 nogil
    cdef int committed(self, Request* request) except -1 nogil
    cdef int changed(self) except -1 nogil
    cdef int prefill_ended(self, Request* request) except -1 nogil
    cdef int answer_stored(self, Request* request) except -1 nogil
    cdef int ended(self, Request* request) except -1 nogil


cdef class Holdings:
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
    cdef int64_t chunks_for(self, int64_t tokens) noexcept nogil
    cdef bint fits_ever(self, int64_t tokens) noexcept nogil
    cdef int64_t held_tokens(self) noexcept nogil
    cdef int64_t capacity_tokens(self) noexcept nogil
    cdef bint has_room(self, Request* request) noexcept nogil
    cdef int32_t pins_in(self, const Request* request, PyObject* tier) noexcept nogil
    cdef int pin_gpu(self, Request* request) except -1 nogil
    cdef int pin_sources(self, Request* request) except -1 nogil
    cdef int add_pin(self, Pin** pins, int32_t* count, int32_t* room, PyObject* tier, int32_t slot, int32_t chunk,
                     int32_t cause) except -1 nogil
