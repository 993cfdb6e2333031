"""Who holds which key: a set of workers for each key and tier, kept by events alone (semantics §8.1).

A worker holds a key until its last copy, in whatever tier, is gone. Memory is bounded by what the
workers hold.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.cache.events cimport CLEAR, COPY, DELETE, INSERT, MOVE, Event, EventLog
from kvbench.cache.table cimport make_table
from kvbench.memory cimport large_realloc, no_memory
from kvbench.routing.copycounts cimport CopyCounts

cdef enum:
    FIRST_ENTRIES = 4096
    STORE_BITS = 24
    LEVEL_BITS = 8


cdef inline uint64_t copy_name(int32_t entry, int32_t level, int32_t store) noexcept nogil:
    return <uint64_t>entry << (STORE_BITS + LEVEL_BITS) | <uint64_t>level << STORE_BITS | <uint64_t>store


cdef class Holders:
    """Base of the index; the arguments are those of :class:`kvbench.routing.KvbmIndex`."""

    def __cinit__(self, int32_t workers, bint dense=False, groups=((1, 1),), bint counts_copies=False,
                  bint predicts=False):
        cdef int32_t t
        self.workers = workers
        self.words = (workers + 63) // 64
        self.tiers = max(len(groups), 1)
        self.levels = self.tiers + predicts
        self.counts_copies = counts_copies
        self.width = self.words * self.levels
        self.group = <int32_t*>calloc(self.levels, sizeof(int32_t))
        self.ranks = <int32_t*>calloc(self.levels, sizeof(int32_t))
        if self.group == NULL or self.ranks == NULL:
            raise MemoryError("KVBM index: no memory")
        for t in range(self.levels):
            self.group[t] = self.ranks[t] = 1
        for t, (group, ranks) in enumerate(groups):
            self.group[t] = group
            self.ranks[t] = ranks
        self.table = make_table(dense)
        self.extras = CopyCounts()
        self.grow()

    def __dealloc__(self):
        free(self.group)
        free(self.ranks)
        free(self.keys)
        free(self.parents)
        free(self.has_parent)
        free(self.holders)
        free(self.free_entries)

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        return self.table.reserve(keys, n)

    cdef int apply(self, EventLog log, int64_t start) except -1 nogil:
        """Take over the events of ``log`` from position ``start`` on."""
        cdef int64_t i
        for i in range(start, log.size):
            self.take(&log.events[i])
        return 0

    cdef int take(self, const Event* event) except -1 nogil:
        """Take over one event."""
        if event.kind == INSERT or event.kind == MOVE or event.kind == COPY:
            self.add(event.key, event.tier, event.store, event.parent, event.has_parent)
        if event.kind == DELETE:
            self.drop(event.key, event.tier, event.store)
        elif event.kind == MOVE:
            self.drop(event.key, event.source, event.source_store)
        elif event.kind == CLEAR:
            self.clear_store(event.tier, event.store)
        return 0

    cdef int add(self, uint64_t key, int32_t level, int32_t store, uint64_t parent, bint has_parent) except -1 nogil:
        """A store has the key, once more if it had it before."""
        cdef int32_t entry = self.table.find(key)
        if entry < 0:
            entry = self.new_entry(key)
        elif self.is_counted(level) and self.holds(entry, level, store):
            self.extras.add(copy_name(entry, level, store))
        if has_parent:
            self.parents[entry] = parent
            self.has_parent[entry] = True
        self.mark(entry, level, store, True)
        return 0

    cdef int32_t new_entry(self, uint64_t key) except -1 nogil:
        cdef int32_t entry
        if self.free_count > 0:
            self.free_count -= 1
            entry = self.free_entries[self.free_count]
        else:
            if self.fresh == self.size:
                self.grow()
            entry = self.fresh
            self.fresh += 1
        self.keys[entry] = key
        self.has_parent[entry] = False
        self.table.insert(key, entry)
        self.held += 1
        return entry

    cdef int drop(self, uint64_t key, int32_t level, int32_t store) except -1 nogil:
        """A store lacks the key, or has one copy less."""
        cdef int32_t entry = self.table.find(key)
        if entry < 0 or not self.holds(entry, level, store):
            self.unmatched += level < self.tiers
            return 0
        if self.extras.size and self.extras.drop(copy_name(entry, level, store), False):
            return 0
        return self.drop_entry(entry, level, store)

    cdef int drop_entry(self, int32_t entry, int32_t level, int32_t store) except -1 nogil:
        """A store lacks the key of an entry; without holders there is no entry."""
        cdef uint64_t left = 0
        cdef int32_t w
        self.mark(entry, level, store, False)
        for w in range(self.width):
            left |= self.holders[<int64_t>entry * self.width + w]
        if left == 0:
            self.table.remove(self.keys[entry])
            self.free_entries[self.free_count] = entry
            self.free_count += 1
            self.held -= 1
        return 0

    cdef int clear_store(self, int32_t level, int32_t store) except -1 nogil:
        """A store has forgotten everything."""
        cdef int32_t entry
        for entry in range(self.fresh):
            # A free entry has no holders.
            if self.holds(entry, level, store):
                if self.extras.size:
                    self.extras.drop(copy_name(entry, level, store), True)
                self.drop_entry(entry, level, store)
        return 0

    cdef int clear_worker(self, int32_t worker) except -1 nogil:
        """A worker has forgotten everything but what it shares with others."""
        cdef int32_t level
        for level in range(self.tiers):
            if self.group[level] == 1:
                self.clear_store(level, worker * self.ranks[level])
        return 0

    @cython.final
    cdef bint is_counted(self, int32_t level) noexcept nogil:
        """Whether copies of a key in one store are counted; predictions always are."""
        return level >= self.tiers or (self.counts_copies and self.ranks[level] == 1)

    @cython.final
    cdef bint holds(self, int32_t entry, int32_t level, int32_t store) noexcept nogil:
        """Whether the workers of a store reach a copy in its tier."""
        cdef int32_t first = store // self.ranks[level] * self.group[level]
        return self.holders[<int64_t>entry * self.width + level * self.words + first // 64] >> (first % 64) & 1

    cdef void mark(self, int32_t entry, int32_t level, int32_t store, bint held) noexcept nogil:
        """Note for all workers that share a store whether it has the key."""
        cdef uint64_t* holders = &self.holders[<int64_t>entry * self.width + level * self.words]
        cdef int32_t first = store // self.ranks[level] * self.group[level]
        cdef int32_t w
        for w in range(first, min(first + self.group[level], self.workers)):
            if held:
                holders[w // 64] |= <uint64_t>1 << (w % 64)
            else:
                holders[w // 64] &= ~(<uint64_t>1 << (w % 64))

    @cython.final
    cdef uint64_t held_in(self, int32_t entry, int32_t word) noexcept nogil:
        """Of 64 workers, those that reach a copy in any tier."""
        cdef const uint64_t* sets = &self.holders[<int64_t>entry * self.width + word]
        cdef uint64_t held = sets[0]
        cdef int32_t t
        for t in range(1, self.levels):
            held |= sets[t * self.words]
        return held

    cdef int grow(self) except -1 nogil:
        cdef int64_t size = max(<int64_t>FIRST_ENTRIES, 2 * <int64_t>self.size)
        cdef void* grown
        if size > 2147483646:
            no_memory("KVBM index", size)
        grown = large_realloc(self.keys, size * sizeof(uint64_t))
        if grown == NULL:
            no_memory("KVBM index", size)
        self.keys = <uint64_t*>grown
        self.table.set_keys(self.keys)
        grown = large_realloc(self.parents, size * sizeof(uint64_t))
        if grown == NULL:
            no_memory("KVBM index", size)
        self.parents = <uint64_t*>grown
        grown = realloc(self.has_parent, size)
        if grown == NULL:
            no_memory("KVBM index", size)
        self.has_parent = <uint8_t*>grown
        grown = large_realloc(self.holders, size * self.width * sizeof(uint64_t))
        if grown == NULL:
            no_memory("KVBM index", size)
        self.holders = <uint64_t*>grown
        memset(self.holders + <int64_t>self.size * self.width, 0, (size - self.size) * self.width * sizeof(uint64_t))
        grown = realloc(self.free_entries, size * sizeof(int32_t))
        if grown == NULL:
            no_memory("KVBM index", size)
        self.free_entries = <int32_t*>grown
        self.size = <int32_t>size
        return 0
