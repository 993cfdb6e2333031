from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t


# Blocks of one request that were touched one after the other in one earlier sweep: their touch
# times fall by one from block to block, so their distances rise by one.
cdef struct Run:
    int64_t first     # index in the request
    int64_t length
    int64_t time      # touch time of the first block
    int64_t distance  # distinct blocks touched after it
    int64_t sweep


cdef struct Sweep:
    int64_t start   # time of its first touch
    int64_t serial  # number of the request


# What is found of a request of one block.
cdef struct Touch:
    int64_t distance  # distinct blocks touched after it; negative at its first touch
    int64_t last_ns   # arrival of the request that touched it before


# 64 positions, and what is asked about them together: one cache line.
cdef struct Word:
    uint64_t bits      # the last touches of blocks
    uint64_t starts    # the first touches of sweeps
    uint32_t started   # sweeps that started before these positions
    uint32_t before    # bits before these, while positions are numbered anew


cdef enum:
    MOST_LEVELS = 8


cdef class Stack:
    cdef readonly int64_t distinct
    cdef uint32_t* last
    cdef int64_t known
    cdef Word* words
    cdef int32_t* tree
    cdef int32_t* levels[MOST_LEVELS]
    cdef int depth
    cdef int64_t tree_size
    cdef int64_t positions, clock
    cdef Sweep* sweeps
    cdef int64_t* arrivals_ns  # of sweeps; apart from what is seldom asked, for fewer waits for memory
    cdef int64_t sweep_count, sweep_room
    cdef Run* runs
    cdef int64_t run_count, run_room

    cdef int know(self, int64_t ids) except -1 nogil
    cdef int locate(self, const int32_t* ids, int64_t n) except -1 nogil
    cdef int place(self, const int32_t* ids, int64_t n, int64_t arrival_ns, int64_t serial) except -1 nogil
    cdef int touch(self, const int32_t* ids, int64_t n, const int64_t* arrivals_ns, int64_t serial,
                   Touch* touches) except -1 nogil
    cdef void expect(self, const int32_t* ids, int64_t n) noexcept nogil
    cdef int64_t after(self, int64_t serial) noexcept nogil
    cdef int64_t rank(self, int64_t position) noexcept nogil
    cdef int64_t sweep_of(self, int64_t time) noexcept nogil
    cdef void append(self, int64_t n) noexcept nogil
    cdef void clear_range(self, int64_t start, int64_t stop) noexcept nogil
    cdef void count_word(self, int64_t at, int32_t change) noexcept nogil
    cdef int compact(self, int64_t wanted) except -1 nogil
    cdef int64_t in_use_before(self, int64_t position) noexcept nogil
    cdef int renew(self, int64_t wanted) except -1 nogil
    cdef int fit_runs(self, int64_t n) except -1 nogil
    cdef int allot(self, int64_t positions) except -1 nogil
    cdef void clear_all(self) noexcept nogil
    cdef int fit_sweeps(self, int64_t more) except -1 nogil
    cdef void add_sweep(self, int64_t arrival_ns, int64_t serial) noexcept nogil
    cdef void mark_start(self, int64_t index, int64_t end) noexcept nogil
