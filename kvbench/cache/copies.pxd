from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.cache.tier cimport Tier


# What a tier that keeps copies remembers of the block in a slot.
cdef struct CopyFacts:
    uint64_t original      # of a copy: the key of the block that it is a copy of
    int32_t next           # slot of the next younger copy of the same block, or -1
    uint8_t is_copy
    uint8_t nameless       # no lookup finds it: a copy, or a partial block


cdef class CopyStore(Tier):
    cdef CopyFacts* copy_facts      # slot -> facts, or NULL: the tier keeps no copies
    cdef const uint64_t* originals  # while a request is stored: its keys, where some of its blocks are copies

    cdef bint has_name(self, int32_t slot) noexcept nogil
    cdef void forget_copy(self, int32_t slot) noexcept nogil
    cdef bint note_copy(self, const uint64_t* keys, int32_t i, int32_t slot) noexcept nogil
    cdef int pass_on_names(self, const int32_t* victims, int32_t n) except -1 nogil
    cdef void unlink(self, int32_t slot) noexcept nogil
    cdef int pass_on(self, int32_t slot) except -1 nogil


cdef uint64_t nobodys_key(int64_t request, int32_t depth) noexcept nogil
