"""T-LRU: evict first what a conversation's next turn can afford to lose, then as LRU does.

Source: "tail-optimised" caching, arXiv 2510.15152 (E-80). If the next turn brings ``next_turn``
new tokens and its latency goal allows for ``threshold`` tokens to be computed, then of a history
of H tokens only the leading B = max(0, H + next_turn − threshold) need to be cached; blocks that
start at B or beyond are safe to lose and go first, oldest last use first. H is the prompt length
of the last request that used the block: a request carries the whole history of its conversation,
so no session is needed. A block counts as 16 tokens where the trace does not say. Cost: O(1) a
block; 8 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

cdef enum:
    USUAL_BLOCK_TOKENS = 16
    QUEUES = 2  # the first is of those that are safe to lose


@cython.final
cdef class TLru(EvictionPolicy):
    """``threshold`` and ``next_turn`` in tokens."""

    cdef Node* queues
    cdef int64_t threshold, next_turn, block_tokens

    def __cinit__(self, context, *, int64_t threshold=1024, int64_t next_turn=256):
        self.threshold = threshold
        self.next_turn = next_turn
        self.block_tokens = context.block_tokens or USUAL_BLOCK_TOKENS
        self.queues = queues_make(self, self.capacity, QUEUES)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        self.remove_slots(slots, n)
        return self.insert_slots(slots, n)

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int64_t needed = self.view.request.input_tokens
        cdef int64_t position
        cdef int32_t k
        if needed < 0:
            needed = self.view.blocks * self.block_tokens
        needed += self.next_turn - self.threshold
        for k in range(n):
            position = self.view.depth + k * self.view.step
            queue_push(self.queues, self.capacity + (position * self.block_tokens < needed), slots[k])
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.queues, slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t head, slot, newer, found = 0
        for head in range(self.capacity, self.capacity + QUEUES):
            slot = self.queues[head].prev
            while found < n and slot != head:
                newer = self.queues[slot].prev
                if self.view.refs[slot] == 1:
                    list_unlink(self.queues, slot)
                    victims[found] = slot
                    found += 1
                slot = newer
        return found
