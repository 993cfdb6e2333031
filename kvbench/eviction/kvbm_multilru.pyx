"""KVBM's MultiLRU pool: four LRU lists by how often a block was asked for, the coldest first.

Source: ai-dynamo/dynamo `lib/kvbm-logical`, `multi_lru_backend.rs` and `tinylfu.rs` (E-59). A
count-min sketch of 4-bit counters, four hashes to a key in one table, estimates how often a key
was asked for; all counters are halved after ten times ``sketch`` counts. A block's list is that of
its estimate at its last use: below ``warm``, below ``hot``, below ``hottest``, or above. Releases
have 2, 6, 15 or 3, 8, 15 here. Counts outlive the block. The hash is kvbench's, so two keys that
collide there need not do so here. Cost: O(1) a block and ``sketch`` / 4 words at a halving; 8
bytes a slot and 2 × ``sketch`` bytes.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.hashing cimport mix64, scale64

from kvbench.errors import ConfigError

cdef enum:
    LEVELS = 4
    HASHES = 4
    FULL = 15
    COUNTS_A_HALVING = 10

cdef uint64_t LOW_BITS = 0x1111111111111111ULL
cdef uint64_t KEPT_BITS = 0x7777777777777777ULL


cdef extern from *:
    int popcount "__builtin_popcountll"(unsigned long long) noexcept nogil


cdef struct SketchState:
    int64_t counted


@cython.final
cdef class KvbmMultiLru(EvictionPolicy):
    """``warm`` < ``hot`` < ``hottest`` <= 15."""

    cdef Node* queues
    cdef int32_t warm, hot, hottest
    cdef int64_t words, limit
    cdef uint64_t* table
    cdef SketchState* state

    def __cinit__(self, context, *, int warm=3, int hot=8, int hottest=15, int64_t sketch=1 << 21):
        if not 0 < warm < hot < hottest <= FULL:
            raise ConfigError(f"kvbm-multilru: needs 0 < warm < hot < hottest <= 15, not {warm}, {hot}, {hottest}")
        self.warm = warm
        self.hot = hot
        self.hottest = hottest
        self.words = max(1, sketch // 4)
        self.limit = COUNTS_A_HALVING * sketch
        self.queues = queues_make(self, self.capacity, LEVELS)
        self.table = <uint64_t*>self.allocate(self.words, sizeof(uint64_t))
        self.state = <SketchState*>self.allocate(1, sizeof(SketchState))

    cdef int32_t count(self, uint64_t key) noexcept nogil:
        """Count one more use of ``key``; returns the new estimate."""
        cdef uint64_t hashed, at, nibble
        cdef int32_t value, least = FULL
        cdef int i
        cdef bint added = False
        for i in range(HASHES):
            hashed = mix64(key + <uint64_t>i * 0x9e3779b97f4a7c15ULL)
            at = scale64(hashed, self.words)
            nibble = 4 * (hashed & 15)
            value = (self.table[at] >> nibble) & FULL
            if value < FULL:
                self.table[at] += <uint64_t>1 << nibble
                added = True
        if added:
            self.state.counted += 1
            if self.state.counted >= self.limit:
                self.halve()
        for i in range(HASHES):
            hashed = mix64(key + <uint64_t>i * 0x9e3779b97f4a7c15ULL)
            least = min(least, <int32_t>((self.table[scale64(hashed, self.words)] >> (4 * (hashed & 15))) & FULL))
        return least

    cdef void halve(self) noexcept nogil:
        cdef int64_t i, odd = 0
        for i in range(self.words):
            odd += popcount(self.table[i] & LOW_BITS)
            self.table[i] = (self.table[i] >> 1) & KEPT_BITS
        self.state.counted = max(0, (self.state.counted >> 1) - (odd >> 2))

    cdef int32_t level(self, int32_t count) noexcept nogil:
        return (count >= self.warm) + (count >= self.hot) + (count >= self.hottest)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        self.remove_slots(slots, n)
        return self.insert_slots(slots, n)

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            queue_push(self.queues, self.capacity + self.level(self.count(self.view.keys[slots[i]])), slots[i])
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.queues, slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t head, slot, newer, found = 0
        for head in range(self.capacity, self.capacity + LEVELS):
            slot = self.queues[head].prev
            while found < n and slot != head:
                newer = self.queues[slot].prev
                if self.view.refs[slot] == 1:
                    list_unlink(self.queues, slot)
                    victims[found] = slot
                    found += 1
                slot = newer
        return found
