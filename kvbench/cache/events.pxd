from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef enum EventKind:
    INSERT = 0
    DELETE = 1
    MOVE = 2
    COPY = 3
    CLEAR = 4
    WITHDRAWN = 99   # for a moment only: see EventLog.withdraw

cdef enum EventReason:
    COMPUTED = 0
    EVICTED = 1
    REMOVED = 2
    PROMOTED = 3
    DEMOTED = 4
    WATERMARK = 5
    FAULT = 6
    RESTART = 7
    NAMELESS = 8
    RECOMPUTED = 9

cdef enum:
    NO_TIER = 255   # `source` of an event that has none
    NO_EVENT = 255  # reason for a slot that is emptied in silence: its MOVE is on record


cdef struct Event:
    int64_t request        # index of the request that caused it
    int64_t sequence       # counts the worker's events from 0
    uint64_t key
    uint64_t parent
    int32_t worker         # who served the request
    int32_t store          # which of the tier's stores it is about: a worker, a host, 0 of a cluster
    int32_t source_store
    uint8_t kind
    uint8_t reason
    uint8_t has_parent
    uint8_t tier           # where the block is now, or has left (DELETE, CLEAR)
    uint8_t source         # where a MOVE or COPY took it from
    uint8_t padding[7]


cdef class EventLog:
    cdef Event* events
    cdef readonly int64_t size
    cdef int64_t room
    cdef int64_t* sequences   # worker -> its next sequence number
    cdef int32_t workers
    cdef int64_t forgotten    # events that were here and are no more

    cdef void forget(self) noexcept nogil
    cdef void withdraw(self, int64_t first, int32_t worker) noexcept nogil
    cdef Event* append(self, int32_t worker) except NULL nogil
    cdef int meet(self, int32_t worker) except -1 nogil
    cpdef clear(self)
