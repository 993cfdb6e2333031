"""The KVBM index: which workers hold which keys, learned from events alone (semantics §8.1).

A key has one entry with a bit for each worker. Scoring a request is one walk over its keys: the
set of candidates starts full and is narrowed by each block's holders; a worker that drops out
at block i has i blocks of prefix overlap. Memory is bounded by what the workers hold.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.cache.events cimport CLEAR, COPY, DELETE, INSERT, MOVE, Event, EventLog
from kvbench.cache.table cimport BlockTable, make_table
from kvbench.memory cimport no_memory

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kvb_lowest_bit(x) __builtin_ctzll(x)
    #else
    static inline int kvb_lowest_bit(unsigned long long x) { int n = 0; while (!(x & 1)) { x >>= 1; n++; } return n; }
    #endif
    """
    int lowest_bit "kvb_lowest_bit"(uint64_t x) noexcept nogil

cdef enum:
    FIRST_ENTRIES = 4096


@cython.final
cdef class KvbmIndex:
    """Index over ``workers`` workers; ``dense`` as for :class:`kvbench.cache.tier.Tier`. ``groups`` says
    for each tier how many workers share one of its stores, and how many ranks have stores of their
    own. A worker holds a key until its last copy, in whatever tier, is gone; where ranks have stores
    of their own, a copy is gone as soon as one rank lacks it."""

    def __cinit__(self, int32_t workers, bint dense=False, groups=((1, 1),)):
        cdef int32_t t
        self.workers = workers
        self.words = (workers + 63) // 64
        self.tiers = max(len(groups), 1)
        self.width = self.words * self.tiers
        self.group = <int32_t*>calloc(self.tiers, sizeof(int32_t))
        self.ranks = <int32_t*>calloc(self.tiers, sizeof(int32_t))
        if self.group == NULL or self.ranks == NULL:
            raise MemoryError("KVBM index: no memory")
        for t, (group, ranks) in enumerate(groups):
            self.group[t] = group
            self.ranks[t] = ranks
        self.table = make_table(dense)
        self.candidates = <uint64_t*>calloc(self.words, sizeof(uint64_t))
        if self.candidates == NULL:
            raise MemoryError("KVBM index: no memory")
        self.grow()

    def __dealloc__(self):
        free(self.group)
        free(self.ranks)
        free(self.keys)
        free(self.holders)
        free(self.candidates)
        free(self.free_entries)

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        return self.table.reserve(keys, n)

    cdef int apply(self, EventLog log, int64_t start) except -1 nogil:
        """Take over the events of ``log`` from position ``start`` on."""
        cdef int64_t i
        cdef Event* event
        for i in range(start, log.size):
            event = &log.events[i]
            if event.kind == INSERT or event.kind == MOVE or event.kind == COPY:
                self.add(event.key, event.tier, event.store)
            if event.kind == DELETE:
                self.drop(event.key, event.tier, event.store)
            elif event.kind == MOVE:
                self.drop(event.key, event.source, event.source_store)
            elif event.kind == CLEAR:
                self.clear_store(event.tier, event.store)
        return 0

    cdef int32_t score(self, const uint64_t* keys, int32_t n, int32_t* overlap) noexcept nogil:
        """Write each worker's prefix overlap with the request in blocks; returns the largest."""
        cdef uint64_t* candidates = self.candidates
        cdef uint64_t dropped, remaining
        cdef int32_t i, w, entry
        memset(overlap, 0, self.workers * sizeof(int32_t))
        for w in range(self.words):
            candidates[w] = ~<uint64_t>0
        if self.workers % 64:
            candidates[self.words - 1] = (<uint64_t>1 << (self.workers % 64)) - 1
        for i in range(n):
            entry = self.table.find(keys[i])
            remaining = 0
            for w in range(self.words):
                dropped = candidates[w] if entry < 0 else candidates[w] & ~self.held_in(entry, w)
                candidates[w] ^= dropped
                remaining |= candidates[w]
                while dropped:
                    overlap[64 * w + lowest_bit(dropped)] = i
                    dropped &= dropped - 1
            if remaining == 0:
                return i
        for w in range(self.words):
            remaining = candidates[w]
            while remaining:
                overlap[64 * w + lowest_bit(remaining)] = n
                remaining &= remaining - 1
        return n

    cdef void score_tiers(self, const uint64_t* keys, int32_t n, const int32_t* overlap,
                          int32_t* tier_overlap) noexcept nogil:
        """Split each worker's ``overlap`` by the fastest tier that has the block: tiers × workers."""
        cdef int32_t i, w, t, entry, worker
        cdef int64_t row
        cdef uint64_t left, here
        memset(tier_overlap, 0, <size_t>self.tiers * self.workers * sizeof(int32_t))
        for i in range(n):
            entry = self.table.find(keys[i])
            if entry < 0:
                break
            for w in range(self.words):
                left = ~<uint64_t>0
                # Most copies are in the fastest tier, so that is what the others leave of the overlap.
                for t in range(self.tiers):
                    row = <int64_t>entry * self.width + t * self.words + w
                    here = left & self.holders[row]
                    left ^= here
                    while here and t:
                        worker = 64 * w + lowest_bit(here)
                        here &= here - 1
                        if overlap[worker] > i:
                            tier_overlap[<int64_t>t * self.workers + worker] += 1
        for worker in range(self.workers):
            tier_overlap[worker] = overlap[worker]
            for t in range(1, self.tiers):
                tier_overlap[worker] -= tier_overlap[<int64_t>t * self.workers + worker]

    cdef void count_held(self, const uint64_t* keys, int32_t n, int32_t* held) noexcept nogil:
        """Write how many of the blocks each worker holds, in whatever place."""
        cdef int32_t i, w, entry
        cdef uint64_t here
        memset(held, 0, self.workers * sizeof(int32_t))
        for i in range(n):
            entry = self.table.find(keys[i])
            if entry < 0:
                continue
            for w in range(self.words):
                here = self.held_in(entry, w)
                while here:
                    held[64 * w + lowest_bit(here)] += 1
                    here &= here - 1

    cdef bint held_elsewhere(self, uint64_t key, int32_t worker) noexcept nogil:
        """Whether any other worker than ``worker`` holds ``key``."""
        cdef int32_t w, entry = self.table.find(key)
        cdef uint64_t others
        if entry < 0:
            return False
        for w in range(self.words):
            others = self.held_in(entry, w)
            if w == worker // 64:
                others &= ~(<uint64_t>1 << (worker % 64))
            if others:
                return True
        return False

    @cython.final
    cdef uint64_t held_in(self, int32_t entry, int32_t word) noexcept nogil:
        """Of 64 workers, those that reach a copy in any tier."""
        cdef const uint64_t* sets = &self.holders[<int64_t>entry * self.width + word]
        cdef uint64_t held = sets[0]
        cdef int32_t t
        for t in range(1, self.tiers):
            held |= sets[t * self.words]
        return held

    cdef void mark(self, int32_t entry, int32_t tier, int32_t store, bint held) noexcept nogil:
        """Note for all workers that share a store whether it has the key."""
        cdef uint64_t* holders = &self.holders[<int64_t>entry * self.width + tier * self.words]
        cdef int32_t first = store // self.ranks[tier] * self.group[tier]
        cdef int32_t w
        for w in range(first, min(first + self.group[tier], self.workers)):
            if held:
                holders[w // 64] |= <uint64_t>1 << (w % 64)
            else:
                holders[w // 64] &= ~(<uint64_t>1 << (w % 64))

    cdef int add(self, uint64_t key, int32_t tier, int32_t store) except -1 nogil:
        cdef int32_t entry = self.table.find(key)
        if entry < 0:
            if self.free_count > 0:
                self.free_count -= 1
                entry = self.free_entries[self.free_count]
            else:
                if self.fresh == self.size:
                    self.grow()
                entry = self.fresh
                self.fresh += 1
            self.keys[entry] = key
            self.table.insert(key, entry)
            self.held += 1
        self.mark(entry, tier, store, True)
        return 0

    cdef int drop(self, uint64_t key, int32_t tier, int32_t store) except -1 nogil:
        cdef int32_t entry = self.table.find(key)
        cdef uint64_t left = 0
        cdef int32_t w
        if entry < 0:
            return 0
        self.mark(entry, tier, store, False)
        for w in range(self.width):
            left |= self.holders[<int64_t>entry * self.width + w]
        if left == 0:
            self.table.remove(key)
            self.free_entries[self.free_count] = entry
            self.free_count += 1
            self.held -= 1
        return 0

    cdef int clear_store(self, int32_t tier, int32_t store) except -1 nogil:
        """A store has forgotten everything. The keys of free entries are dropped in vain."""
        cdef int32_t entry
        for entry in range(self.fresh):
            if self.table.find(self.keys[entry]) == entry:
                self.drop(self.keys[entry], tier, store)
        return 0

    cdef int grow(self) except -1 nogil:
        cdef int64_t size = max(<int64_t>FIRST_ENTRIES, 2 * <int64_t>self.size)
        cdef uint64_t* keys
        cdef uint64_t* holders
        cdef int32_t* free_entries
        if size > 2147483646:
            no_memory("KVBM index", size)
        keys = <uint64_t*>realloc(self.keys, size * sizeof(uint64_t))
        if keys == NULL:
            no_memory("KVBM index", size)
        self.keys = keys
        self.table.set_keys(keys)
        holders = <uint64_t*>realloc(self.holders, size * self.width * sizeof(uint64_t))
        if holders == NULL:
            no_memory("KVBM index", size)
        memset(holders + <int64_t>self.size * self.width, 0, (size - self.size) * self.width * sizeof(uint64_t))
        self.holders = holders
        free_entries = <int32_t*>realloc(self.free_entries, size * sizeof(int32_t))
        if free_entries == NULL:
            no_memory("KVBM index", size)
        self.free_entries = free_entries
        self.size = <int32_t>size
        return 0

    # -- from Python ---------------------------------------------------------------------------

    def overlaps(self, const uint64_t[::1] keys):
        """Prefix overlap of each worker with these keys, in blocks."""
        cdef int32_t[::1] found
        import array
        found = array.array("i", bytes(4 * self.workers))
        if keys.shape[0]:
            self.table.reserve(&keys[0], keys.shape[0])
            self.score(&keys[0], <int32_t>keys.shape[0], &found[0])
        return list(found)

    def holders_of(self, uint64_t key):
        """The workers that hold ``key``."""
        cdef int32_t entry = self.table.find(key)
        if entry < 0:
            return []
        return [
            worker for worker in range(self.workers)
            if self.held_in(entry, worker // 64) >> (worker % 64) & 1
        ]
