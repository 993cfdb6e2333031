from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.admission cimport AdmissionFilter
from kvbench.cache.flights cimport FlightStore
from kvbench.cache.seen cimport Seen

cdef enum WriteMode:
    THROUGH = 0
    BACK = 1
    NO_WRITES = 2
    SPILL = 3

cdef enum Promotion:
    COPY_UP = 0
    MOVE_UP = 1
    NO_PROMOTION = 2
    TEMPORARY = 3

cdef enum TouchOn:
    ON_REQUEST = 0
    ON_HIT = 1
    ON_LOOKUP = 2
    NEVER_TOUCHED = 3

cdef enum PartialBlock:
    NO_ROOM_NEEDED = 0
    REUSED_FIRST = 1
    EVICTED_IN_TURN = 2

# Counters of a store; TIER_COUNTS in stacked.pyx has their names.
cdef enum:
    HIT_BLOCKS = 0
    OVERLAP_BLOCKS
    READ_CHUNKS
    READ_OPERATIONS
    WRITTEN_CHUNKS
    WRITE_OPERATIONS
    LOOKUP_OPERATIONS
    COMPUTED_CHUNKS
    PROMOTED_CHUNKS
    PROMOTED_USED_CHUNKS
    DEMOTED_CHUNKS
    STAGED_CHUNKS
    MOVED_UP_CHUNKS
    MOVED_DOWN_CHUNKS
    EVICTED_ROOM_CHUNKS
    EVICTED_WATERMARK_CHUNKS
    DROPPED_FAULTY_CHUNKS
    REFUSED_ADMISSION_CHUNKS
    REFUSED_ROOM_CHUNKS
    REFUSED_FAULT_CHUNKS
    REFUSED_FROZEN_CHUNKS
    DUPLICATE_CHUNKS
    FAILED_GETS
    FAILED_PUTS
    RETRIES
    LOST_BLOCKS
    AGE_CHUNKS
    AGE_SUM_NS
    AGE_MAX_NS
    COUNTERS

cdef enum:
    AGE_BUCKETS = 64
    EVICTED_FROM = 16   # Seen state: EVICTED_FROM + level of the tier that evicted it last
    NOT_ADMITTED = 3    # Seen states of blocks that no tier took
    FAULTY = 4


# What a stack remembers of the block in a slot.
cdef struct SlotFacts:
    uint64_t parent
    int64_t stored_ns
    int32_t depth
    uint8_t has_parent


cdef class StackedTier(FlightStore):
    cdef readonly int32_t multiple    # blocks of a chunk
    cdef readonly int write
    cdef readonly int promotion
    cdef readonly int touch_on
    cdef readonly bint spares         # a request's own blocks are no victims
    cdef readonly int partial         # what becomes of a request's partial last block
    cdef readonly bint whole          # stores all of a request or nothing
    cdef readonly int32_t high        # watermark in chunks, 0: none
    cdef readonly int32_t low
    cdef double ratio
    cdef int64_t period_ns, next_check_ns
    cdef AdmissionFilter admission
    cdef StackedTier below            # the tier that takes what this one evicts, or None
    cdef Seen seen
    cdef SlotFacts* facts
    cdef uint8_t* promoted            # slot -> 1: promoted and not used since. By itself, for hits look at it
    cdef int64_t* counts
    cdef int64_t* ages                # log2 buckets of the age at eviction, ns
    cdef int reason                   # why blocks are evicted at the moment
    cdef bint received                # blocks have come down during this request
    # Faults in force: shares of operations that fail, as a fraction of 2^64.
    cdef bint unhealthy
    cdef uint64_t get_fails, put_fails
    # Of the request at hand: position -> tier that delivered it, -1: computed; and whether it moves.
    cdef const int8_t* origin
    cdef PyObject** sources           # level -> store that such a tier delivered from

    cdef bint still_in(self, StackedTier source, uint64_t key) noexcept nogil
    cdef int receive(self, StackedTier above, int32_t slot) except -1 nogil
    cdef void take_view(self, StackedTier above) noexcept nogil
    cdef int hand_down(self, const int32_t* victims, int32_t n) except -1 nogil
    cdef void note_ages(self, const int32_t* victims, int32_t n) noexcept nogil
    cdef int add_nameless(self, int32_t depth) except -1 nogil
    cdef int note_dropped(self, int32_t slot) except -1 nogil
    cdef int take_out(self, int32_t slot) except -1 nogil
    cdef int free_room(self, int32_t chunks) except -1 nogil
    cdef int keep_below_watermark(self, int64_t now_ns) except -1 nogil
    cdef int drop_faulty(self, int32_t slot) except -1 nogil
