from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.stacked cimport StackedTier
from kvbench.eviction.view cimport RequestFacts


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
    bint whole             # every chunk is here and counts as used: the mask needs no look
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
    int32_t delivered      # blocks of the request that it delivered


cdef class TierStack:
    cdef readonly int32_t worker
    cdef readonly int32_t levels
    cdef list tiers                    # [level][rank]
    cdef Level* level
    cdef bint once, spill
    cdef readonly bint frozen
    cdef int retries
    cdef uint64_t fault_seed
    cdef bint faulty                   # some fault is in force
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
    cdef int32_t extra                 # blocks that the request at hand holds only while it is served
    cdef bint has_partial              # one of them is its partial last block
    cdef int32_t hit, resident, stored, evicted, truncated, overlap, lost, refused

    cdef int fit(self, int64_t n) except -1 nogil
    cdef int32_t lookup(self, const uint64_t* keys, int32_t n, int32_t asked, int64_t readable) except -1 nogil
    cdef int look_at(self, int32_t t, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil
    cdef int ask(self, StackedTier tier, int32_t t, int64_t readable) except -1 nogil
    cdef int blank(self, StackedTier tier, int32_t n) except -1 nogil
    cdef void join_ranks(self, int32_t t) noexcept nogil
    cdef bint serves(self, int32_t t, int32_t i) noexcept nogil
    cdef void assign(self, int32_t n, int32_t skip) noexcept nogil
    cdef void assign_once(self, int32_t n, int32_t skip) noexcept nogil
    cdef void note_found(self, int32_t n) noexcept nogil
    cdef int fetch(self) except -1 nogil
    cdef bint fails(self, uint64_t key, int32_t t, int32_t salt, uint64_t share) noexcept nogil
    cdef int lose(self, int32_t t, int32_t j) except -1 nogil
    cdef int lose_at(self, StackedTier tier, int32_t j) except -1 nogil
    cdef bint delivered_by(self, int32_t t, int32_t j) noexcept nogil
    cdef void stage(self, StackedTier tier, int32_t t) noexcept nogil
    cdef void count_reads(self) noexcept nogil
    cdef int touch_hits(self, StackedTier tier, int32_t t) except -1 nogil
    cdef int commit(self, const uint64_t* keys, int32_t n) except -1 nogil
    cdef int plan(self, StackedTier tier, Place* place, int32_t t) except -1 nogil
    cdef int plan_spill(self, int32_t n) except -1 nogil
    cdef bint has_room(self, StackedTier tier, int32_t t, int32_t taken) noexcept nogil
    cdef int admit(self, StackedTier tier, Place* place, Level* level, int32_t t) except -1 nogil
    cdef int fail_puts(self, StackedTier tier, Place* place, Level* level, int32_t t) noexcept nogil
    cdef int store(self, StackedTier tier, Place* place, Level* level, int32_t t, int32_t r) except -1 nogil
    cdef int32_t hold_extra(self, StackedTier tier, Place* place, Level* level, int32_t missing) except -1 nogil
    cdef int32_t staged_chunks(self, int32_t t) noexcept nogil
    cdef int store_batch(self, StackedTier tier, Place* place, Level* level) except -1 nogil
    cdef int make_way(self, StackedTier tier, Level* level, int32_t staged) except -1 nogil
    cdef int32_t below_of(self, int32_t t, int32_t j) noexcept nogil
    cdef void follow_moves(self, StackedTier tier, Place* place, Level* level) noexcept nogil
    cdef bint hides(self, const uint64_t* keys, int32_t i) noexcept nogil
    cdef bint hidden_in(self, StackedTier tier, uint64_t key) noexcept nogil
    cdef int take_sources(self, StackedTier tier, Place* place, int32_t r, int32_t fits) except -1 nogil
    cdef bint take_source(self, StackedTier below, int32_t j, uint64_t key) except -1 nogil
    cdef void pin(self, StackedTier tier, int32_t chunks, int32_t by) noexcept nogil
    cdef int finish(self) except -1 nogil
    cdef int outcome(self, int32_t i) noexcept nogil
    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
