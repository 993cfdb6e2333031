"""Hyperbolic: evict, out of a sample, the block with the fewest uses per unit of age, where the age
counts the uses of all blocks since it was stored.

Source: Blankstein, Sen and Freedman, "Hyperbolic caching", USENIX ATC 2017; a sample of 64 as in
libCacheSim 0.3.5. Draws come from the policy's own seeded stream; while there are no more blocks
than a sample would have, all are looked at. Cost: O(1) a touched or inserted block, O(samples)
an evicted one; 24 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.members cimport Members, members_add, members_draw, members_init, members_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.rng cimport Stream, stream_below, stream_seed

from kvbench.errors import ConfigError


cdef struct Life:
    int64_t stored  # the time of storing
    int64_t uses


@cython.final
cdef class Hyperbolic(EvictionPolicy):
    """Time is the number of blocks touched or stored so far."""

    cdef Members members
    cdef Life* lives
    cdef int64_t* clock
    cdef Stream* stream
    cdef int32_t samples

    def __cinit__(self, context, *, int samples=64):
        if samples < 1:
            raise ConfigError(f"hyperbolic: samples = {samples} is below 1")
        self.samples = samples
        members_init(&self.members, self, self.capacity)
        self.lives = <Life*>self.allocate(self.capacity, sizeof(Life))
        self.clock = <int64_t*>self.allocate(1, sizeof(int64_t))
        self.stream = <Stream*>self.allocate(1, sizeof(Stream))
        stream_seed(self.stream, context.seed)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        self.clock[0] += n
        for i in range(n):
            self.lives[slots[i]].uses += 1
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.clock[0] += 1
            self.lives[slots[i]].stored = self.clock[0]
            self.lives[slots[i]].uses = 1
            members_add(&self.members, slots[i])
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            members_remove(&self.members, slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found, slot
        for found in range(n):
            slot = self.least()
            if slot < 0:
                return found
            members_remove(&self.members, slot)
            victims[found] = slot
        return n

    cdef int32_t least(self) noexcept nogil:
        """The evictable slot of lowest worth in a sample, the first met among equals; -1: none."""
        cdef int32_t count = self.members.count[0]
        cdef bint all_of_them = count <= self.samples
        cdef int32_t best = -1
        cdef int32_t i, slot
        for i in range(count if all_of_them else self.samples):
            slot = self.members.slots[i if all_of_them else stream_below(self.stream, count)]
            if self.view.refs[slot] == 1 and (best < 0 or self.worth(slot) < self.worth(best)):
                best = slot
        # A sample may have nothing but pinned blocks.
        return members_draw(&self.members, self.stream, self.view.refs) if best < 0 else best

    cdef double worth(self, int32_t slot) noexcept nogil:
        return <double>self.lives[slot].uses / <double>(self.clock[0] + 1 - self.lives[slot].stored)
