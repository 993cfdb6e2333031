"""Random: evict any block, each with the same chance.

Source: folklore. Draws come from the policy's own seeded stream. Cost: nothing on a hit, O(1) an
inserted or evicted block; 8 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.members cimport Members, members_add, members_draw, members_init, members_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.rng cimport Stream, stream_seed


@cython.final
cdef class Random(EvictionPolicy):
    """The set of resident slots, and a stream to draw from it."""

    cdef Members members
    cdef Stream* stream

    def __cinit__(self, context):
        members_init(&self.members, self, self.capacity)
        self.stream = <Stream*>self.allocate(1, sizeof(Stream))
        stream_seed(self.stream, context.seed)

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
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
            slot = members_draw(&self.members, self.stream, self.view.refs)
            if slot < 0:
                return found
            members_remove(&self.members, slot)
            victims[found] = slot
        return n
