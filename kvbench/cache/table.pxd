from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

# What a lookup may find instead of a slot. A hash table knows ABSENT only.
cdef enum:
    ABSENT = -1
    ABSENT_EVICTED = -2    # it was resident once
    ABSENT_TRUNCATED = -3  # its last request left no room for it


cdef class BlockTable:
    cdef const uint64_t* keys

    cdef void set_keys(self, const uint64_t* keys) noexcept nogil
    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil
    cdef int32_t find(self, uint64_t key) noexcept nogil
    cdef int64_t find_many(self, const uint64_t* keys, int64_t n, int64_t readable, int32_t* slots) noexcept nogil
    cdef int insert(self, uint64_t key, int32_t slot) except -1 nogil
    cdef void remove(self, uint64_t key) noexcept nogil
    cdef int insert_slots(self, const int32_t* slots, int64_t n) except -1 nogil
    cdef void remove_slots(self, const int32_t* slots, int64_t n) noexcept nogil


cdef class HashTable(BlockTable):
    cdef uint64_t* entries
    cdef int bits
    cdef int64_t size, used, grow_at
    cdef uint64_t* filled      # a bit for each slot: its key is in the table
    cdef int64_t known_slots   # slots that have one

    cdef int grow(self) except -1 nogil
    cdef int know_slots(self, int64_t slot) except -1 nogil
    cdef int32_t find_hashed(self, uint64_t key, uint64_t hashed) noexcept nogil
    cdef int64_t find_each(self, const uint64_t* keys, int64_t n, int64_t readable, int32_t* slots) noexcept nogil
    cdef bint is_filled(self, int64_t slot) noexcept nogil
    cdef int64_t follow_run(self, const uint64_t* keys, int64_t at, int64_t n, int32_t* slots) noexcept nogil
    cdef void remove_hashed(self, uint64_t key, uint64_t hashed) noexcept nogil


cdef class DirectTable(BlockTable):
    cdef int32_t* slots
    cdef uint64_t size


cdef uint64_t dense_size(const uint64_t* keys, int64_t n, uint64_t size) except? 0 nogil
cpdef BlockTable make_table(bint dense)
