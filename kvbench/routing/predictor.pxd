from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport EventLog
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.load cimport Moment, Span


# One block that a request took to a worker.
cdef struct Prediction:
    Moment made
    uint64_t key
    int32_t worker


cdef class Predictor:
    cdef KvbmIndex index

    cdef int predict(self, const uint64_t* keys, int32_t n, int32_t worker, Moment now) except -1 nogil
    cdef int advance(self, Moment now) except -1 nogil


cdef class TimedPredictor(Predictor):
    cdef Span ttl
    cdef Prediction* made      # a ring
    cdef int64_t room, first, count

    cdef int grow(self) except -1 nogil


cdef class MirrorPredictor(Predictor):
    cdef list mirrors
    cdef PyObject** mirror_of
    cdef EventLog log
