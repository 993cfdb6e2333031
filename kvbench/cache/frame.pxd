from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.stacked cimport StackedTier
from kvbench.eviction.view cimport RequestFacts


cdef enum:
    GET = 0
    PUT = 1
    NO_LEVEL = -1

# What is done with a request: it is looked up, fetched and stored; or only stored, all of it computed; or
# only fetched.
cdef enum Mode:
    SERVE = 0
    STORE_ONLY = 1
    FETCH_ONLY = 2

# Beside STORE and TOUCH in a mask: why a chunk is not stored.
cdef enum:
    REFUSED = 4
    FAILED = 8
    NO_ROOM = 16


# One rank's store of a tier, and what the request at hand has to do with it.
cdef struct Place:
    PyObject* tier
    int64_t* counts
    uint8_t* mask
    int8_t* origin
    bint settled           # every chunk is here and counts as used: the mask needs no look
    bint offers            # some chunk is to be stored
    int32_t wanted         # so many are


cdef struct Level:
    Place* places          # one a rank
    int32_t ranks
    int32_t multiple
    int32_t chunks         # whole chunks of the request
    const uint64_t* keys   # their keys
    uint64_t* gathered     # scratch for them, where a chunk is more than a block
    const int32_t* here    # chunk -> slot, or negative where any rank lacks it
    int32_t* common        # scratch for it, where there are several ranks
    int32_t first          # chunks of the request that it has to do with
    int32_t stop
    int32_t delivered      # blocks of the request that it delivered
    int32_t read_chunks    # chunks that this takes, and operations
    int32_t reads
    bint hidden            # no lookup sees it
    bint closed            # it takes no computed blocks


cdef class StackFrame:
    cdef readonly int32_t worker
    cdef readonly int32_t levels
    cdef list tiers                    # [level][rank]
    cdef Level* level
    cdef bint once, spill
    cdef readonly bint frozen
    cdef int retries
    cdef uint64_t fault_seed
    cdef bint faulty                   # some fault is in force
    cdef readonly bint timed           # blocks take time to come and go
    cdef bint again                    # the request has been looked up before: it is not counted as asked
    cdef PyObject** sources            # level -> store of this worker, of the rank served
    cdef bint any_moves                # some tier draws blocks up
    cdef bint always_pins              # tiers may push blocks down for other reasons than a store
    cdef const int32_t* next_use       # block -> request that uses it next, or NULL
    cdef int64_t room
    cdef int8_t* credit                # block -> level that delivers it, or -1
    cdef int8_t* lies_in               # the same, kept up to date while blocks move up
    cdef int32_t* found                # block -> a slot where it is resident anywhere, or negative
    cdef uint8_t* admitted
    cdef uint64_t* offered
    cdef int32_t* offered_at
    cdef RequestFacts request
    cdef int mode
    cdef int32_t skip                  # so many leading blocks of the request are left alone
    cdef uint64_t* names               # scratch for the keys of a request of which a tier stores copies
    cdef bint has_partial              # the request at hand has a partial last block
    cdef int32_t hit, resident, stored, evicted
    # Of the last request: blocks read again with a slower tier's chunk, and those claimed and given back.
    cdef readonly int32_t overlap, lost

    cdef int fit(self, int64_t n) except -1 nogil
    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
