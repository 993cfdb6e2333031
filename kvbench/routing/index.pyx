"""The KVBM index: which workers hold which keys, learned from events alone (semantics §8.1).

A key has one entry with a bit for each worker and tier. Scoring a request is one walk over its
keys: the set of candidates starts full and is narrowed by each block's holders; a worker that drops
out at block i has i blocks of prefix overlap. Memory is bounded by what the workers hold.

A block whose parent the worker is not known to hold is *parked*: no prefix reaches it, so it cannot
be matched until an event brings the parent.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kvbench.prefetch cimport prefetch
from kvbench.routing.holders cimport Holders

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kvb_lowest_bit(x) __builtin_ctzll(x)
    #define kvb_bits(x) __builtin_popcountll(x)
    #else
    static inline int kvb_lowest_bit(unsigned long long x) { int n = 0; while (!(x & 1)) { x >>= 1; n++; } return n; }
    static inline int kvb_bits(unsigned long long x) { int n = 0; while (x) { x &= x - 1; n++; } return n; }
    #endif
    """
    int lowest_bit "kvb_lowest_bit"(uint64_t x) noexcept nogil
    int bits_of "kvb_bits"(uint64_t x) noexcept nogil

cdef enum:
    BATCH = 64       # keys that are looked up together
    FIRST_BATCH = 4  # a prompt that nobody knows is over soon
    WORDS_OF_A_LINE = 8


@cython.final
cdef class KvbmIndex:
    """Index over ``workers`` workers; ``dense`` as for :class:`kvbench.cache.tier.Tier`. ``groups`` says
    for each tier how many workers share one of its stores, and how many ranks have stores of their
    own. A worker holds a key until its last copy, in whatever tier, is gone; where ranks have stores
    of their own, a copy is gone as soon as one rank lacks it.

    ``counts_copies``  a store may hold a key several times, and holds it until as many deletions have
    come (vLLM); else one deletion ends all. Not where ranks have stores of their own.
    ``predicts``  there is one more level beside the tiers, for what is only predicted to be held.
    """

    def __cinit__(self, *args, **kwargs):
        self.candidates = <uint64_t*>calloc(self.words, sizeof(uint64_t))
        self.active = <int32_t*>calloc(self.words, sizeof(int32_t))
        if self.candidates == NULL or self.active == NULL:
            raise MemoryError("KVBM index: no memory")

    def __dealloc__(self):
        free(self.candidates)
        free(self.active)

    cdef int32_t score(self, const uint64_t* keys, int32_t n, int32_t* overlap) noexcept nogil:
        """Write each worker's prefix overlap with the request in blocks; returns the largest."""
        cdef int32_t entries[BATCH]
        cdef int32_t i, w, at = 0, batch = FIRST_BATCH, active = self.words
        memset(overlap, 0, self.workers * sizeof(int32_t))
        for w in range(self.words):
            self.candidates[w] = ~<uint64_t>0
            self.active[w] = w
        if self.workers % 64:
            self.candidates[self.words - 1] = (<uint64_t>1 << (self.workers % 64)) - 1
        while at < n:
            batch = min(batch, n - at)
            self.table.find_many(keys + at, batch, n - at, entries)
            self.fetch(entries, batch, active)
            for i in range(batch):
                if entries[i] < 0:
                    self.settle(at + i, active, overlap)
                    return at + i
                active = self.narrow(entries[i], at + i, active, overlap)
                if active == 0:
                    return at + i
            at += batch
            batch = BATCH
        self.settle(n, active, overlap)
        return n

    @cython.final
    cdef void fetch(self, const int32_t* entries, int32_t n, int32_t active) noexcept nogil:
        """Prefetch the words of these entries' holders that there are candidates in."""
        cdef int32_t i, a
        cdef int32_t step = 1 if active < WORDS_OF_A_LINE else WORDS_OF_A_LINE
        for i in range(n):
            if entries[i] < 0:
                return
            a = 0
            while a < active:
                prefetch(&self.holders[<int64_t>entries[i] * self.width + self.active[a]])
                a += step

    @cython.final
    cdef int32_t narrow(self, int32_t entry, int32_t block, int32_t active, int32_t* overlap) noexcept nogil:
        """Drop the candidates that lack a block; returns how many words have any left."""
        cdef const uint64_t* sets = &self.holders[<int64_t>entry * self.width]
        cdef uint64_t* candidates = self.candidates
        cdef int32_t* words = self.active
        cdef uint64_t here, dropped
        cdef int32_t a, t, w, kept = 0
        for a in range(active):
            w = words[a]
            here = sets[w]
            for t in range(1, self.levels):
                here |= sets[t * self.words + w]
            dropped = candidates[w] & ~here
            candidates[w] &= here
            while dropped and block:  # of 0 blocks is what all begin with
                overlap[64 * w + lowest_bit(dropped)] = block
                dropped &= dropped - 1
            words[kept] = w
            kept += candidates[w] != 0
        return kept

    @cython.final
    cdef void settle(self, int32_t blocks, int32_t active, int32_t* overlap) noexcept nogil:
        """All candidates that are left have so many blocks."""
        cdef int32_t a, w
        cdef uint64_t left
        for a in range(active):
            w = self.active[a]
            left = self.candidates[w]
            if left == ~<uint64_t>0:
                for w in range(64 * w, 64 * w + 64):
                    overlap[w] = blocks
                continue
            while left:
                overlap[64 * w + lowest_bit(left)] = blocks
                left &= left - 1

    cdef void score_tiers(self, const uint64_t* keys, int32_t n, const int32_t* overlap,
                          int32_t* tier_overlap) noexcept nogil:
        """Split each worker's ``overlap`` by the fastest tier that has the block: tiers × workers. ``n`` is the
        largest overlap.

        What is only predicted counts as in the fastest tier.
        """
        cdef int32_t i, w, t, entry, worker
        cdef uint64_t left, here
        if self.tiers == 1:
            memcpy(tier_overlap, overlap, self.workers * sizeof(int32_t))
            return
        memset(tier_overlap, 0, <size_t>self.tiers * self.workers * sizeof(int32_t))
        for i in range(n):
            entry = self.table.find(keys[i])
            if entry < 0:
                break
            for w in range(self.words):
                # Most copies are in the fastest tier, so that is what the others leave of the overlap.
                left = ~self.holders[<int64_t>entry * self.width + w]
                for t in range(1, self.tiers):
                    here = left & self.holders[<int64_t>entry * self.width + t * self.words + w]
                    left ^= here
                    while here:
                        worker = 64 * w + lowest_bit(here)
                        here &= here - 1
                        tier_overlap[<int64_t>t * self.workers + worker] += overlap[worker] > i
        for worker in range(self.workers):
            tier_overlap[worker] = overlap[worker]
            for t in range(1, self.tiers):
                tier_overlap[worker] -= tier_overlap[<int64_t>t * self.workers + worker]

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

    def score_batch(self, const uint64_t[::1] keys, const int64_t[::1] offsets, int32_t[:, ::1] overlaps):
        """Write the overlaps of a batch of requests: request i has ``keys[offsets[i]:offsets[i + 1]]``, and row i
        of ``overlaps`` has its overlap with each worker. Returns the sum of each request's largest."""
        cdef int64_t i, best = 0, n = offsets.shape[0] - 1
        if overlaps.shape[0] != n or overlaps.shape[1] != self.workers:
            raise ValueError("overlaps are not requests × workers")
        for i in range(n):
            if not 0 <= offsets[i] <= offsets[i + 1] <= keys.shape[0]:
                raise ValueError("offsets point outside the keys")
        if n == 0 or keys.shape[0] == 0:
            overlaps[:] = 0
            return 0
        with nogil:
            self.table.reserve(&keys[0], keys.shape[0])
            for i in range(n):
                best += self.score(&keys[0] + offsets[i], <int32_t>(offsets[i + 1] - offsets[i]), &overlaps[i, 0])
        return best

    def tier_overlaps(self, const uint64_t[::1] keys):
        """For each tier, each worker's overlap in blocks whose fastest copy is there."""
        cdef int32_t[::1] found, split
        import array
        found = array.array("i", bytes(4 * self.workers))
        split = array.array("i", bytes(4 * self.workers * self.tiers))
        if keys.shape[0]:
            self.table.reserve(&keys[0], keys.shape[0])
            self.score(&keys[0], <int32_t>keys.shape[0], &found[0])
            self.score_tiers(&keys[0], <int32_t>keys.shape[0], &found[0], &split[0])
        return [list(split[t * self.workers:(t + 1) * self.workers]) for t in range(self.tiers)]

    def holders_of(self, uint64_t key):
        """The workers that hold ``key``."""
        cdef int32_t entry = self.table.find(key)
        if entry < 0:
            return []
        return [
            worker for worker in range(self.workers)
            if self.held_in(entry, worker // 64) >> (worker % 64) & 1
        ]

    @property
    def parked(self):
        """Blocks, counted for each worker that holds them, whose parent the worker is not known to hold:
        they cannot be matched."""
        cdef int64_t found = 0
        cdef int32_t entry, parent, w
        for entry in range(self.fresh):
            if not self.has_parent[entry]:
                continue
            parent = self.table.find(self.parents[entry])
            for w in range(self.words):
                # A free entry has no holders.
                found += bits_of(self.held_in(entry, w) & ~(self.held_in(parent, w) if parent >= 0 else <uint64_t>0))
        return found

    def beyond(self, KvbmIndex other):
        """Holdings, a key of a worker each, that are here and not in ``other``."""
        cdef int64_t found = 0
        cdef int32_t entry, there, w
        for entry in range(self.fresh):
            there = other.table.find(self.keys[entry])
            for w in range(self.words):
                found += bits_of(self.held_in(entry, w) & ~(other.held_in(there, w) if there >= 0 else <uint64_t>0))
        return found
