from libc.stdint cimport int64_t, uint32_t, uint64_t

from kvbench.replays.stack cimport Touch


# A fraction in units of 2^-96: sums of shares come out exact, in any order.
cdef struct Share:
    uint64_t low
    uint64_t high


# What one block of a request weighs in the two means over requests.
cdef struct Weights:
    Share block
    Share token


# Sums of one distance. `hits`, `resident` and the shares are differences to the distance before.
cdef struct Cell:
    int64_t hits
    int64_t resident
    Share block_share
    Share token_share
    int64_t tail_tokens
    uint32_t tail_hits
    uint32_t first_hits


cdef Share share_of(uint64_t part, uint64_t whole) noexcept nogil


cdef class Sums:
    cdef void set_group(self, int64_t group) noexcept nogil
    cdef int add_hits(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil
    cdef int add_level(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil
    cdef int add_tail(self, int64_t distance, int64_t tokens, const Weights* weights) except -1 nogil
    cdef int add_resident(self, int64_t distance, int64_t blocks) except -1 nogil
    cdef int add_first(self, int64_t distance) except -1 nogil
    cdef int add_lone(self, const Touch* touches, int64_t n, const Weights* weights) except -1 nogil


cdef class ExactSums(Sums):
    cdef Cell** chunks
    cdef int64_t** lone
    cdef int64_t chunk_room
    cdef Weights lone_weights
    cdef readonly int64_t end

    cdef Cell* cell(self, int64_t distance) except NULL nogil
    cdef int fit(self, int64_t chunk) except -1 nogil
    cdef Cell* peek(self, int64_t distance) noexcept nogil
    cdef int64_t* lone_at(self, int64_t distance) except NULL nogil
    cdef int64_t peek_lone(self, int64_t distance) noexcept nogil


cdef class GroupSums(Sums):
    cdef ExactSums all
    cdef int64_t* grid
    cdef int64_t size
    cdef int64_t groups
    cdef double* sums
    cdef double* mine

    cdef int64_t above(self, int64_t distance) noexcept nogil
    cdef void spread(self, int figure, int64_t distance, int64_t blocks, double weight) noexcept nogil
    cdef void spread_all(self, int64_t distance, int64_t blocks, const Weights* weights) noexcept nogil
