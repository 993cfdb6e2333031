from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum EventKind:
    INSERT = 0
    DELETE = 1

cdef enum EventReason:
    COMPUTED = 0
    EVICTED = 1
    REMOVED = 2


cdef struct Event:
    int64_t request    # index of the request that caused it
    int64_t sequence   # counts the worker's events from 0
    uint64_t key
    uint64_t parent
    int32_t worker
    uint8_t kind
    uint8_t reason
    uint8_t has_parent
    uint8_t tier


cdef class EventLog:
    cdef Event* events
    cdef readonly int64_t size
    cdef int64_t room

    cdef Event* append(self) except NULL nogil
    cpdef clear(self)
