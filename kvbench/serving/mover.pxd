from libc.stdint cimport int32_t

from kvbench.serving.request cimport Request
from kvbench.serving.shipments cimport Shipments

# What came of the try to give a request its blocks.
cdef enum Admission:
    STARTS = 0         # it has them all
    FETCHES = 1        # they are on their way
    NO_ROOM_NOW = 2
    NO_FETCH_NOW = 3   # as many are fetching as may
    SHARED_SOON = 4    # another one computes what it needs next
    NO_SEAT_NOW = 5    # there is nothing to fetch, and the step takes no more


cdef class Mover(Shipments):
    cdef int admit(self, Request* request, bint may_fetch, bint may_start) except -1 nogil
    cdef bint needs_fetch(self, int32_t hit) noexcept nogil
    cdef bint is_shared_soon(self, Request* request, int32_t hit) noexcept nogil
    cdef int32_t worth_loading(self, Request* request, int32_t hit) except -1 nogil
    cdef int take(self, Request* request, int32_t asked) except -1 nogil
    cdef int land_computed(self, Request* request) except -1 nogil
    cdef int grow(self, Request* request) except -1 nogil
    cdef int release(self, Request* request) except -1 nogil
    cdef int store_answer(self, Request* request) except -1 nogil
    cdef int give_up_writes(self, Request* request) except -1 nogil
