from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from kvbench.cache.table cimport HashTable


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
    int64_t arrival_ns
    int64_t serial  # number of the request


cdef class Numbering:
    cdef HashTable table
    cdef uint64_t* keys
    cdef int64_t used, room

    cdef int number(self, const uint64_t* keys, int64_t n, int32_t* ids) except -1 nogil
    cdef void ready(self, uint64_t key) noexcept nogil
    cdef int64_t find(self, const uint64_t* keys, int64_t n, int32_t* ids) noexcept nogil


cdef class Stack:
    cdef readonly int64_t distinct
    cdef uint32_t* last
    cdef int64_t known
    cdef uint64_t* bits
    cdef uint64_t* starts
    cdef uint32_t* started
    cdef int32_t* tree
    cdef int64_t positions, clock
    cdef Sweep* sweeps
    cdef int64_t sweep_count, sweep_room
    cdef Run* runs
    cdef int64_t run_count, run_room

    cdef int know(self, int64_t ids) except -1 nogil
    cdef int locate(self, const int32_t* ids, int64_t n) except -1 nogil
    cdef int place(self, const int32_t* ids, int64_t n, int64_t arrival_ns, int64_t serial) except -1 nogil
    cdef int64_t after(self, int64_t serial) noexcept nogil
    cdef int64_t rank(self, int64_t position) noexcept nogil
    cdef int64_t sweep_of(self, int64_t time) noexcept nogil
    cdef void set_range(self, int64_t start, int64_t stop) noexcept nogil
    cdef void clear_range(self, int64_t start, int64_t stop) noexcept nogil
    cdef void count_line(self, int64_t line, int32_t change) noexcept nogil
    cdef int compact(self, int64_t wanted) except -1 nogil
    cdef int renew(self, int64_t wanted) except -1 nogil
    cdef int fit_runs(self, int64_t n) except -1 nogil
    cdef int add_sweep(self, int64_t arrival_ns, int64_t serial) except -1 nogil
    cdef void mark_start(self, int64_t index, int64_t end) noexcept nogil
