"""LFU: evict the block with the fewest uses since it was stored; among these the one that reached
that count first. Counts are forgotten with the block.

Source: folklore; constant time by lists of equal counts as in Shah, Mitra and Matani, "An O(1)
algorithm for implementing the LFU cache eviction scheme", 2010. Cost: O(1) a touched, inserted or
evicted block, and blocks of one request that were last used together move as one; 36 bytes a
slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node, list_unlink

cdef struct Shared:
    int32_t fresh      # buckets from here on were never used
    int32_t free_head  # chain of emptied buckets, through their `next`; 0 ends it


@cython.final
cdef class Lfu(EvictionPolicy):
    """A bucket holds the blocks of one count in a list of its own, oldest at the back.

    Bucket b is node b of ``order``, by rising count (0 is the sentinel), and its list hangs on
    node capacity + b of ``nodes``, where slot s is node s.
    """

    cdef Node* nodes
    cdef Node* order
    cdef int64_t* counts    # of buckets
    cdef int32_t* buckets   # of slots
    cdef Shared* shared

    def __cinit__(self, context):
        # A block on its way may need a bucket before its old one is given up.
        cdef size_t buckets = <size_t>self.capacity + 2
        self.nodes = <Node*>self.allocate(self.capacity + buckets, sizeof(Node))
        self.order = <Node*>self.allocate(buckets, sizeof(Node))
        self.counts = <int64_t*>self.allocate(buckets, sizeof(int64_t))
        self.buckets = <int32_t*>self.allocate(self.capacity, sizeof(int32_t))
        self.shared = <Shared*>self.allocate(1, sizeof(Shared))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        # A prefix that is asked again lies in its list as the last sweep left it.
        cdef Node* nodes = self.nodes
        cdef int32_t i = 0
        cdef int32_t j
        while i < n:
            j = i
            while j + 1 < n and nodes[slots[j]].prev == slots[j + 1]:
                j += 1
            self.raise_run(&slots[i], j - i + 1)
            i = j + 1
        return 0

    cdef void raise_run(self, const int32_t* run, int32_t n) noexcept nogil:
        """Count a use of blocks that follow each other in one bucket, oldest first."""
        cdef Node* nodes = self.nodes
        cdef int32_t first = run[n - 1]
        cdef int32_t last = run[0]
        cdef int32_t bucket = self.buckets[last]
        cdef int32_t before = nodes[first].prev
        cdef int32_t after = nodes[last].next
        cdef int32_t target = self.order[bucket].next
        cdef bint fits = target != 0 and self.counts[target] == self.counts[bucket] + 1
        if before == after and not fits:
            self.counts[bucket] += 1  # the run is all of its bucket
            return
        if not fits:
            target = self.new_bucket(bucket, self.counts[bucket] + 1)
        nodes[before].next = after
        nodes[after].prev = before
        if before == after:
            self.free_bucket(bucket)
        self.push_run(target, run, n)

    cdef void push_run(self, int32_t bucket, const int32_t* run, int32_t n) noexcept nogil:
        """Put blocks that are linked among themselves, oldest first, at the front of a bucket."""
        cdef Node* nodes = self.nodes
        cdef int32_t sentinel = self.capacity + bucket
        cdef int32_t front = nodes[sentinel].next
        cdef int32_t i
        nodes[run[n - 1]].prev = sentinel
        nodes[run[0]].next = front
        nodes[front].prev = run[0]
        nodes[sentinel].next = run[n - 1]
        for i in range(n):
            self.buckets[run[i]] = bucket

    cdef int32_t new_bucket(self, int32_t lower, int64_t count) noexcept nogil:
        """An empty bucket that follows bucket ``lower``."""
        cdef int32_t bucket = self.shared.free_head
        cdef int32_t upper = self.order[lower].next
        if bucket != 0:
            self.shared.free_head = self.order[bucket].next
        else:
            self.shared.fresh += 1
            bucket = self.shared.fresh
        self.counts[bucket] = count
        self.nodes[self.capacity + bucket].prev = self.nodes[self.capacity + bucket].next = self.capacity + bucket
        self.order[bucket].prev = lower
        self.order[bucket].next = upper
        self.order[lower].next = bucket
        self.order[upper].prev = bucket
        return bucket

    cdef void free_bucket(self, int32_t bucket) noexcept nogil:
        list_unlink(self.order, bucket)
        self.order[bucket].next = self.shared.free_head
        self.shared.free_head = bucket

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        cdef int32_t lowest = self.order[0].next
        if n == 0:
            return 0
        if lowest == 0 or self.counts[lowest] != 1:
            lowest = self.new_bucket(0, 1)
        for i in range(n - 1):
            self.nodes[slots[i]].prev = slots[i + 1]
            self.nodes[slots[i + 1]].next = slots[i]
        self.push_run(lowest, slots, n)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.take(slots[i])
        return 0

    cdef void take(self, int32_t slot) noexcept nogil:
        list_unlink(self.nodes, slot)
        if self.nodes[slot].prev == self.nodes[slot].next:
            self.free_bucket(self.buckets[slot])

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef const int32_t* refs = self.view.refs
        cdef int32_t bucket = self.order[0].next
        cdef int32_t found = 0
        cdef int32_t above, node, before
        while bucket != 0 and found < n:
            above = self.order[bucket].next
            node = self.nodes[self.capacity + bucket].prev
            while node < self.capacity and found < n:
                before = self.nodes[node].prev
                if refs[node] == 1:
                    self.take(node)
                    victims[found] = node
                    found += 1
                node = before
            bucket = above
        return found
