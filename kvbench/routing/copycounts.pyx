"""How often a store holds a block beyond the first time, where it may hold one several times (vLLM)."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc

from kvbench.cache.table cimport HashTable
from kvbench.memory cimport no_memory

cdef enum:
    FIRST_COUNTS = 256


@cython.final
cdef class CopyCounts:
    """Counts of copies beyond the first, by a 64-bit name of the copy."""

    def __cinit__(self):
        self.table = HashTable()

    def __dealloc__(self):
        free(self.names)
        free(self.counts)
        free(self.unused)

    cdef int add(self, uint64_t copy) except -1 nogil:
        """One more copy beyond the first."""
        cdef int32_t at = self.table.find(copy)
        if at >= 0:
            self.counts[at] += 1
            return 0
        if self.unused_count > 0:
            self.unused_count -= 1
            at = self.unused[self.unused_count]
        else:
            if self.fresh == self.room:
                self.grow()
            at = self.fresh
            self.fresh += 1
        self.names[at] = copy
        self.counts[at] = 1
        self.table.insert(copy, at)
        self.size += 1
        return 0

    cdef bint drop(self, uint64_t copy, bint all_of_them) noexcept nogil:
        """One copy beyond the first less, or none any more; returns whether there was one."""
        cdef int32_t at = self.table.find(copy)
        if at < 0:
            return False
        self.counts[at] -= 1
        if all_of_them or self.counts[at] == 0:
            self.table.remove(copy)
            self.size -= 1
            self.unused[self.unused_count] = at
            self.unused_count += 1
        return True

    cdef int grow(self) except -1 nogil:
        cdef int64_t size = max(<int64_t>FIRST_COUNTS, 2 * <int64_t>self.room)
        cdef void* grown
        grown = realloc(self.names, size * sizeof(uint64_t))
        if grown == NULL:
            no_memory("copy counts", size)
        self.names = <uint64_t*>grown
        self.table.set_keys(self.names)
        grown = realloc(self.counts, size * sizeof(int32_t))
        if grown == NULL:
            no_memory("copy counts", size)
        self.counts = <int32_t*>grown
        grown = realloc(self.unused, size * sizeof(int32_t))
        if grown == NULL:
            no_memory("copy counts", size)
        self.unused = <int32_t*>grown
        self.room = <int32_t>size
        return 0
