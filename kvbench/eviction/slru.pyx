"""SLRU: LRU in segments of equal size; each use lifts a block into the next one.

A segment that got too large pushes its back down into the one below. The back of the lowest
segment that is not empty goes. Segments have ``capacity // segments`` blocks, so up to
``segments - 1`` places of the cache are in none: they are used while it fills, and given up
again when a block sinks into a lowest segment that is above its share.

Source: Karedla, Love, Wherry, "Caching strategies to improve disk system performance", IEEE
Computer 27 (3), 1994, with n segments as libCacheSim 0.3.5 counts it (a filling cache fills the
upper segments, too). Cost: O(segments) a touched block at worst, O(1) otherwise; 9 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queues_make
from kvbench.eviction.segments cimport (
    MOST_SEGMENTS,
    Segments,
    segment_overflows,
    segments_evictable,
    segments_forget,
    segments_init,
    segments_insert,
    segments_touch,
)

from kvbench.errors import ConfigError

cdef struct State:
    int32_t sank  # a block sank into the lowest segment and made it too large


@cython.final
cdef class Slru(EvictionPolicy):
    """All is in the segments."""

    cdef Segments parts
    cdef State* state

    def __cinit__(self, context, *, int segments=4):
        cdef int32_t i
        if not 1 <= segments <= MOST_SEGMENTS:
            raise ConfigError(f"slru: segments = {segments} is not between 1 and {MOST_SEGMENTS}")
        self.one_by_one = self.drops = True
        segments_init(
            &self.parts,
            self,
            queues_make(self, self.capacity, segments),
            <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t)),
            self.capacity,
            segments,
        )
        for i in range(segments):
            self.parts.segments[i].share = max(1, self.capacity // segments)
        self.state = <State*>self.allocate(1, sizeof(State))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if segments_touch(&self.parts, slots[i]):
                self.state.sank = True
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        self.state.sank = False  # what was not asked for after the use is not given up for a newcomer
        for i in range(n):
            segments_insert(&self.parts, slots[i])
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            segments_forget(&self.parts, slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        while found < n:
            victims[found] = segments_evictable(&self.parts, self.view)
            if victims[found] < 0:
                break
            segments_forget(&self.parts, victims[found])
            found += 1
        return found

    cdef int32_t drop_slot(self) except -2 nogil:
        cdef int32_t victim = -1
        if self.state.sank and segment_overflows(&self.parts, 0):
            victim = segments_evictable(&self.parts, self.view)
        if victim < 0:
            self.state.sank = False
        else:
            segments_forget(&self.parts, victim)
        return victim
