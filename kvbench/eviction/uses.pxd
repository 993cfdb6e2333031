# Blocks ordered by their number of uses, for policies one of whose judges is an LFU.
#
# A bucket holds the slots of one count, youngest at the front. Bucket b (from 1) is node b of
# `order`, by rising count, and the head of its slots is node `slots + b` of `nodes`, where slot s
# is node s.

from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_evictable, queue_push
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.eviction.view cimport TierView

cdef enum:
    RUNS = 8


cdef struct Buckets:
    int32_t fresh      # buckets up to this one were used once
    int32_t free_head  # chain of emptied ones, through their `next`; 0 ends it


# Neighbours in a bucket that were found pinned, as marks of queues are (see queues.pxd). Few
# buckets are searched between two stirs, so buckets share them: their slots tell them apart.
cdef struct Run:
    int32_t first
    int32_t last
    int64_t stirs


cdef struct Uses:
    int32_t slots
    Run[RUNS] runs
    Node* nodes
    Node* order
    int32_t* counts    # of buckets
    int32_t* buckets   # of slots
    Buckets* spare


cdef int uses_init(Uses* uses, EvictionPolicy policy, int32_t slots) except -1


cdef inline int32_t uses_of(const Uses* uses, int32_t slot) noexcept nogil:
    return uses.counts[uses.buckets[slot]]


cdef inline int32_t uses_open(Uses* uses, int32_t before, int32_t count) noexcept nogil:
    # A new bucket behind another one (0: first of all).
    cdef int32_t bucket = uses.spare.free_head
    if bucket != 0:
        uses.spare.free_head = uses.order[bucket].next
    else:
        uses.spare.fresh += 1
        bucket = uses.spare.fresh
    queue_push(uses.order, before, bucket)
    uses.counts[bucket] = count
    uses.nodes[uses.slots + bucket].prev = uses.nodes[uses.slots + bucket].next = uses.slots + bucket
    return bucket


cdef inline void uses_put(Uses* uses, int32_t slot, int32_t count, int32_t bucket) noexcept nogil:
    # Into the bucket of `count`, which is not before `bucket`.
    cdef int32_t after = uses.order[bucket].next
    while after != 0 and uses.counts[after] < count:
        bucket = after
        after = uses.order[bucket].next
    if after == 0 or uses.counts[after] != count:
        after = uses_open(uses, bucket, count)
    uses.buckets[slot] = after
    queue_push(uses.nodes, uses.slots + after, slot)


cdef inline void uses_add(Uses* uses, int32_t slot, int32_t count) noexcept nogil:
    uses_put(uses, slot, count, 0)


cdef inline void uses_leave(Uses* uses, int32_t bucket) noexcept nogil:
    # Give up a bucket that has become empty.
    if uses.nodes[uses.slots + bucket].next == uses.slots + bucket:
        list_unlink(uses.order, bucket)
        uses.order[bucket].next = uses.spare.free_head
        uses.spare.free_head = bucket


cdef inline void uses_remove(Uses* uses, int32_t slot) noexcept nogil:
    list_unlink(uses.nodes, slot)
    uses_leave(uses, uses.buckets[slot])


cdef inline void uses_raise(Uses* uses, int32_t slot) noexcept nogil:
    cdef int32_t bucket = uses.buckets[slot]
    list_unlink(uses.nodes, slot)
    uses_put(uses, slot, uses.counts[bucket] + 1, bucket)
    uses_leave(uses, bucket)


cdef inline int32_t uses_oldest(const Uses* uses, const int32_t* refs) noexcept nogil:
    # Of the evictable blocks used least, the one that reached that count first; or -1.
    cdef int32_t bucket = uses.order[0].next
    cdef int32_t slot = -1
    while bucket != 0 and slot < 0:
        slot = queue_evictable(uses.nodes, uses.slots + bucket, refs)
        bucket = uses.order[bucket].next
    return slot


cdef inline int32_t uses_youngest_of(Uses* uses, int32_t bucket, TierView view) noexcept nogil:
    # The evictable block nearest to the front of a bucket, or -1. Blocks enter at the front, so
    # what is known to be pinned begins behind those that came since.
    cdef Run* run = &uses.runs[bucket % RUNS]
    cdef int32_t first = uses.nodes[uses.slots + bucket].next
    cdef int32_t slot = first
    cdef int32_t last = -1
    if run.stirs != view.stirs:
        run.first = -1
    while slot < uses.slots and (slot == run.first or view.refs[slot] != 1):
        last = run.last if slot == run.first else slot
        slot = uses.nodes[last].next
    if last >= 0:
        run.first = first
        run.last = last
        run.stirs = view.stirs
    return slot if slot < uses.slots else -1


cdef inline int32_t uses_youngest(Uses* uses, TierView view) noexcept nogil:
    # Of the evictable blocks used least, the one that reached that count last; or -1.
    cdef int32_t bucket = uses.order[0].next
    cdef int32_t slot = -1
    while bucket != 0 and slot < 0:
        slot = uses_youngest_of(uses, bucket, view)
        bucket = uses.order[bucket].next
    return slot
