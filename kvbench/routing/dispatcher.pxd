from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport EventLog
from kvbench.routing.index cimport KvbmIndex
from kvbench.routing.ledger cimport LoadLedger
from kvbench.routing.load cimport Moment
from kvbench.routing.policy cimport RouteQuery


# What is decided for a request.
cdef struct Decision:
    int32_t worker
    int32_t best         # longest prefix that any worker holds
    int32_t predicted    # prefix that the router's index sees at the chosen worker
    int64_t handle       # by which to say when the request's prefill, and itself, has ended


cdef class Dispatcher:
    cdef readonly KvbmIndex truth
    cdef readonly list views
    cdef readonly int32_t workers
    cdef LoadLedger ledger
    cdef PyObject** view_of
    cdef int32_t count
    cdef int32_t* overlap

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int hear(self, EventLog log, int64_t first, Moment now) except -1 nogil
    cdef int dispatch(self, RouteQuery* query, Decision* decision) except -1 nogil
    cdef int prefill_ended(self, int64_t handle, Moment now) except -1 nogil
    cdef int ended(self, int64_t handle, Moment now) except -1 nogil
    cdef int decide(self, PyObject* view, RouteQuery* query, Decision* decision) except -1 nogil
