"""The base of radix policies: only blocks without resident children go, lowest rank first.

Parents are those of the requests (`parent_slot`); a block whose parent went before it, by `remove`
or because only it was not pinned, is an orphan until a request brings the parent back. Cost:
O(1) a touched block that has children, O(log leaves) one that has none, O(log leaves) an evicted
block; 64 bytes a slot.
"""

from libc.stdint cimport int32_t

from kvbench.eviction.heap cimport (
    HeapEntry, heap_contains, heap_init, heap_push, heap_remove, heap_size,
)
from kvbench.eviction.policy cimport EvictionPolicy


cdef inline bint rank_before(const Rank* a, const Rank* b) noexcept nogil:
    return a.key < b.key or (a.key == b.key and a.tie < b.tie)


cdef class LeafPolicy(EvictionPolicy):
    """Keeps child counts and a heap of the leaves; subclasses rank."""

    def __cinit__(self, context, *args, **kwargs):
        heap_init(&self.heap, self, self.capacity)
        self.kin = <Kin*>self.allocate(self.capacity, sizeof(Kin))
        self.ranks = <Rank*>self.allocate(self.capacity, sizeof(Rank))
        self.counts = <LeafCounts*>self.allocate(1, sizeof(LeafCounts))

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            heap_remove(&self.heap, slots[i])
            self.forget(slots[i])
        return 0

    cdef void forget(self, int32_t slot) noexcept nogil:
        # The block in `slot` is gone; its parent becomes a leaf if it was the last child.
        cdef Kin* kin = self.kin
        cdef int32_t parent = kin[slot].parent
        if kin[slot].parent_life != 0 and kin[parent].life == kin[slot].parent_life:
            kin[parent].children -= 1
            if kin[parent].children == 0:
                heap_push(&self.heap, parent, self.ranks[parent].key, self.ranks[parent].tie)
        kin[slot].life += 1
        kin[slot].parent_life = 0
        kin[slot].children = 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef const int32_t* refs = self.view.refs
        cdef HeapEntry root
        cdef int32_t end = heap_size(&self.heap)
        cdef int32_t held = 0, found = 0
        while found < n and heap_size(&self.heap) > 0:
            root = self.heap.entries[1]
            heap_remove(&self.heap, root.slot)
            if refs[root.slot] == 1:
                self.forget(root.slot)
                victims[found] = root.slot
                found += 1
            else:
                # Pinned leaves wait behind the end of the heap: a victim makes way for at most
                # one parent, so what pinned ones have vacated stays free.
                self.heap.entries[end - held] = root
                held += 1
        while held > 0:
            held -= 1
            root = self.heap.entries[end - held]
            heap_push(&self.heap, root.slot, root.key, root.tie)
        if found < n:
            found += self.evict_inner(n - found, victims + found)
        return found

    cdef int32_t evict_inner(self, int32_t n, int32_t* victims) noexcept nogil:
        """Every leaf is pinned, and room is needed: inner blocks must go, lowest rank first.

        An engine pins a block with all before it, so this serves callers that pin single blocks.
        """
        cdef const int32_t* refs = self.view.refs
        cdef int32_t slot, best, found = 0
        while found < n:
            best = -1
            for slot in range(self.capacity):
                if self.kin[slot].life & 1 == 0 or refs[slot] != 1:
                    continue
                if best < 0 or rank_before(&self.ranks[slot], &self.ranks[best]):
                    best = slot
            if best < 0:
                return found
            heap_remove(&self.heap, best)
            self.forget(best)
            victims[found] = best
            found += 1
        return found
