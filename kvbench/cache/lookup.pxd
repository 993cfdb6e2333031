from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.frame cimport Level, StackFrame
from kvbench.cache.stacked cimport StackedTier


cdef class StackLookup(StackFrame):
    cdef int32_t lookup(self, const uint64_t* keys, int32_t n, int32_t asked, int64_t readable) except -1 nogil
    cdef int find(self, const uint64_t* keys, int32_t n, int32_t skip, int64_t readable) except -1 nogil
    cdef int look_at(self, int32_t t, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil
    cdef int ask(self, StackedTier tier, int32_t t, int64_t readable) except -1 nogil
    cdef int blank(self, StackedTier tier, int32_t n) except -1 nogil
    cdef void join_ranks(self, int32_t t) noexcept nogil
    cdef void pass_by_pending(self, StackedTier tier, Level* level) noexcept nogil
    cdef bint is_pending(self, int32_t i) noexcept nogil
    cdef bint has(self, int32_t t, int32_t i) noexcept nogil
    cdef bint serves(self, int32_t t, int32_t i) noexcept nogil
    cdef void assign(self, int32_t n, int32_t skip) noexcept nogil
    cdef void assign_once(self, int32_t n, int32_t skip) noexcept nogil
    cdef int32_t behind(self, int32_t n) noexcept nogil
    cdef void note_found(self, int32_t n) noexcept nogil
    cdef int fetch(self) except -1 nogil
    cdef bint fails(self, uint64_t key, int32_t t, int32_t salt, uint64_t share) noexcept nogil
    cdef int lose(self, int32_t t, int32_t j) except -1 nogil
    cdef int lose_at(self, StackedTier tier, int32_t j) except -1 nogil
    cdef bint hides(self, const uint64_t* keys, int32_t i) noexcept nogil
    cdef bint hidden_in(self, StackedTier tier, uint64_t key) noexcept nogil
    cdef void stage(self, StackedTier tier, int32_t t) noexcept nogil
    cdef int32_t staged_chunks(self, int32_t t, int32_t most) noexcept nogil
    cdef void count_reads(self) noexcept nogil
    cdef bint delivered_by(self, int32_t t, int32_t j) noexcept nogil
    cdef int touch_hits(self, StackedTier tier, int32_t t) except -1 nogil
