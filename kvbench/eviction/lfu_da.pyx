"""LFU-DA: LFU with dynamic aging, so that what was popular once does not stay for ever. Two rules
go by that name.

``edition=libcachesim`` has an age L, 0 at first. A block is stored with key L + 1, and a hit adds L
to its key. Evicted is the class of key L, first in, first out; when it is empty, by an eviction or
by a hit, L goes up to the next key there is. A hit moves L before the block joins its new class, so
a block can come to lie below L, and so can one that is pinned when L passes it; there it stays until
it is used again, or nothing else is left.

``edition=textbook`` is key = L + uses, where L is the key of the last victim: for blocks of one
size that is GDSF (:mod:`kvbench.eviction.gdsf`), and the same code.

Source: Arlitt et al., "Evaluating content management techniques for web proxy caches", 2000;
libCacheSim 0.3.5 (``LFUDA``). Cost: O(log n) a touched, inserted or evicted block; 64 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.gdsf import Gdsf

from kvbench.eviction.heap cimport Heap, heap_evict, heap_init, heap_min, heap_pop, heap_push, heap_remove, heap_tie
from kvbench.eviction.policy cimport EvictionPolicy


def make_lfu_da(context, *, str edition):
    """The policy of either edition."""
    return Gdsf(context) if edition == "textbook" else LfuDa(context)


cdef struct Clocks:
    int64_t age
    int64_t joins  # of all classes: the order within one


@cython.final
cdef class LfuDa(EvictionPolicy):
    """libCacheSim's edition. Blocks below the age lie in a heap of their own."""

    cdef Heap heap
    cdef Heap below
    cdef int64_t* keys
    cdef Clocks* clocks

    def __cinit__(self, context):
        heap_init(&self.heap, self, self.capacity)
        heap_init(&self.below, self, self.capacity)
        self.keys = <int64_t*>self.allocate(self.capacity, sizeof(int64_t))
        self.clocks = <Clocks*>self.allocate(1, sizeof(Clocks))

    cdef void join(self, int32_t slot, int64_t key) noexcept nogil:
        self.clocks.joins += 1
        self.keys[slot] = key
        heap_push(&self.heap if key >= self.clocks.age else &self.below, slot, key, self.clocks.joins)

    cdef void leave(self, int32_t slot) noexcept nogil:
        heap_remove(&self.heap, slot)
        heap_remove(&self.below, slot)

    cdef void raise_age(self) noexcept nogil:
        """Class L may be empty; the lowest of those above takes its place."""
        cdef int32_t lowest = heap_min(&self.heap)
        if lowest >= 0:
            self.clocks.age = self.keys[lowest]

    cdef void pass_blocks(self, int64_t age) noexcept nogil:
        """L goes up to ``age``; what lies lower was pinned, or would have been evicted."""
        cdef int32_t slot = heap_min(&self.heap)
        cdef int64_t tie
        self.clocks.age = age
        while slot >= 0 and self.keys[slot] < age:
            tie = heap_tie(&self.heap, slot)
            heap_pop(&self.heap)
            heap_push(&self.below, slot, self.keys[slot], tie)
            slot = heap_min(&self.heap)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        cdef int64_t key, age
        for i in range(n):
            key = self.keys[slots[i]]
            age = self.clocks.age
            self.leave(slots[i])
            if key == age:
                self.raise_age()
            self.join(slots[i], key + age)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.join(slots[i], self.clocks.age + 1)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.leave(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef const int32_t* refs = self.view.refs
        cdef int32_t found = heap_evict(&self.heap, refs, n, victims)
        if found > 0:
            self.pass_blocks(self.keys[victims[found - 1]])
        if found < n:
            found += heap_evict(&self.below, refs, n - found, victims + found)
        self.raise_age()
        return found
