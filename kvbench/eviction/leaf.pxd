# Radix policies: only blocks without resident children may go.
#
# A subclass calls `leaf_born` for each slot stored and then, for each slot stored or touched,
# `leaf_place` with the key and tie by which the slot is ranked, lowest first to go. The heap holds
# the leaves alone; a block enters it, with the rank of its last call, when its last child goes.

from libc.stdint cimport int32_t, int64_t, uint32_t

from kvbench.eviction.heap cimport Heap, heap_contains, heap_push, heap_remove, heap_update
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.view cimport TierView, parent_slot


# `life` counts up when the slot is filled and when it is emptied: odd while it holds a block. A
# child remembers the life of its parent, so a parent that went first leaves no wrong link behind.
cdef struct Kin:
    int32_t parent
    uint32_t parent_life   # 0: none, the block is a root or an orphan
    uint32_t life
    int32_t children
    int32_t depth


cdef struct Rank:
    int64_t key
    int64_t tie


cdef struct LeafCounts:
    int64_t clock


cdef class LeafPolicy(EvictionPolicy):
    cdef Heap heap
    cdef Kin* kin
    cdef Rank* ranks
    cdef LeafCounts* counts

    cdef void forget(self, int32_t slot) noexcept nogil
    cdef int32_t evict_inner(self, int32_t n, int32_t* victims) noexcept nogil


cdef inline void leaf_born(LeafPolicy policy, int32_t slot, int32_t k) noexcept nogil:
    # The k-th slot of the run holds a new block. Its children may have been told of before it.
    policy.kin[slot].life += 1
    policy.kin[slot].parent_life = 0
    policy.kin[slot].depth = policy.view.depth + k * policy.view.step


cdef inline void leaf_link(LeafPolicy policy, int32_t slot, int32_t k) noexcept nogil:
    # Tie a block without a resident parent to the one that it has now, if any.
    cdef Kin* kin = policy.kin
    cdef int32_t parent
    if kin[slot].parent_life != 0 and kin[kin[slot].parent].life == kin[slot].parent_life:
        return
    parent = parent_slot(policy.view, k)
    if parent < 0 or parent == slot:
        return
    # A sweep from the tail tells of children first, so a parent may be about to be born. Block by
    # block (no `slots`) it was told before, and may have gone again to make room. Parents are never
    # deeper than their children, so that ids which do not stand for prefixes make no cycles.
    if kin[parent].life & 1 == 0:
        if policy.view.slots == NULL:
            return
    elif kin[parent].depth >= kin[slot].depth:
        return
    kin[slot].parent = parent
    kin[slot].parent_life = kin[parent].life | 1
    kin[parent].children += 1
    if kin[parent].children == 1:
        heap_remove(&policy.heap, parent)


cdef inline void leaf_place(LeafPolicy policy, int32_t slot, int32_t k, int64_t key, int64_t tie) noexcept nogil:
    leaf_link(policy, slot, k)
    policy.ranks[slot].key = key
    policy.ranks[slot].tie = tie
    if policy.kin[slot].children == 0:
        if heap_contains(&policy.heap, slot):
            heap_update(&policy.heap, slot, key, tie)
        else:
            heap_push(&policy.heap, slot, key, tie)


cdef inline void leaf_rerank(LeafPolicy policy, int32_t slot, int64_t key, int64_t tie) noexcept nogil:
    # Another rank for a block that was not used.
    policy.ranks[slot].key = key
    policy.ranks[slot].tie = tie
    if heap_contains(&policy.heap, slot):
        heap_update(&policy.heap, slot, key, tie)
