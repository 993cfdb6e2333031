from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.flights cimport FlightStore
from kvbench.serving.clock cimport Clock
from kvbench.serving.links cimport Transfers
from kvbench.serving.request cimport Request


# A block on its way into a slot of a store; -1 for the slot once it has landed or is lost.
cdef struct Entry:
    PyObject* tier
    int32_t slot
    int32_t chunk        # of the request that it is of
    int32_t position     # in what this store is to be given; ranks are written at the same time


# Blocks on their way into one lower tier.
cdef struct Write:
    Request* request     # for which they are computed or fetched, or NULL
    Entry* entries
    int32_t count, room
    int32_t length       # entries of the store that is given most
    int32_t worker       # whose GPU they come from
    int32_t level
    int32_t cause        # a FillCause
    int32_t next         # next of the request's writes, or next unused record; -1: none
    int64_t handle       # of its transfer, once it has started; else -1
    int64_t chunk_bytes


cdef class Traffic:
    cdef readonly Clock clock
    cdef readonly Transfers transfers
    cdef Write* writes
    cdef int32_t write_room, unused
    cdef readonly int64_t lost_chunks    # written too late: what they were read from was evicted first

    cdef int32_t new_write(self) except -1 nogil
    cdef int add_slot(self, int32_t write, PyObject* tier, int32_t slot, int32_t chunk, int32_t position) except -1 nogil
    cdef void drop_write(self, int32_t write) noexcept nogil
    cdef int land_write(self, int32_t write) except -1 nogil
