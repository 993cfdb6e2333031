from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport EventLog
from kvbench.routing.channel cimport EventChannel
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.load cimport Moment
from kvbench.routing.policy cimport RouteQuery, RouterPolicy
from kvbench.routing.predictor cimport Predictor


cdef class RouterView:
    cdef readonly RouterPolicy router
    cdef readonly KvbmIndex index
    cdef readonly EventChannel channel
    cdef Predictor predictor
    cdef bint hears          # of events at once
    cdef int32_t* overlap
    cdef int32_t* tier_overlap

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int hear(self, EventLog log, int64_t first, Moment now) except -1 nogil
    cdef int32_t choose_worker(self, RouteQuery* query) except -1 nogil
    cdef int ask(self, RouteQuery* query) except -1 nogil
    cdef int refuse_worker(self, int32_t worker) except -1 nogil
