from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.memory cimport Int32Memory
from kvbench.rng cimport Stream
from kvbench.routing.load cimport LoadView, Moment


# One request as a router sees it.
cdef struct RouteQuery:
    Moment now
    const uint64_t* keys         # of its cacheable blocks
    int32_t blocks               # so many
    int32_t best                 # largest overlap
    const int32_t* overlap       # worker -> leading blocks it holds
    const int32_t* tier_overlap  # [tier][worker] -> of these, those whose fastest copy is in the tier; NULL unless wanted
    int64_t tokens               # prompt tokens; -1 where they are not known
    int32_t session, tenant      # numbers; -1 where the trace says none, or nobody asked


cdef class RandomStream:
    cdef Stream stream


cdef class RouterPolicy:
    cdef readonly int32_t workers
    cdef readonly int32_t tiers
    cdef readonly LoadView load
    cdef readonly bint wants_tiers

    cdef int32_t choose_worker(self, const RouteQuery* query) except -1 nogil


cdef class RouteRequest:
    cdef const RouteQuery* query
    cdef readonly int64_t number, time_ns, tokens
    cdef readonly int32_t blocks, best, session, tenant
    cdef readonly Int32Memory overlap, tier_overlap

    cdef int show(self, const RouteQuery* query, int32_t workers, int32_t tiers) except -1


cdef class PythonRouter(RouterPolicy):
    cdef readonly RouteRequest request
