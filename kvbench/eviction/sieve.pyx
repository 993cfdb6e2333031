"""SIEVE: a queue in order of storing that blocks never move in, a bit a block, and a hand. A hit
sets the bit. The hand steps from old to young, clearing bits, evicts the first block whose bit is
not set, and stays there.

Source: Zhang et al., "SIEVE is simpler than LRU", NSDI 2024. Cost: O(1) a touched or inserted
block, O(1) amortised an evicted one; 9 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t

from kvbench.eviction.slotlist cimport ListPolicy, Node, list_push_many, list_unlink


@cython.final
cdef class Sieve(ListPolicy):
    """The hand is a node, the next one to look at; 0 stands for the oldest."""

    cdef uint8_t* used
    cdef int32_t* hand

    def __cinit__(self, context):
        self.used = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.hand = <int32_t*>self.allocate(1, sizeof(int32_t))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.used[slots[i]] = 1
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.used[slots[i]] = 0
        list_push_many(self.nodes, slots, n)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.hand[0] == slots[i] + 1:
                self.hand[0] = self.nodes[slots[i] + 1].prev
            list_unlink(self.nodes, slots[i] + 1)
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef Node* nodes = self.nodes
        cdef const int32_t* refs = self.view.refs
        cdef int32_t node = self.hand[0]
        cdef int32_t before, found = 0
        cdef bint idle = False  # nothing evictable was met since the hand was last at the young end
        while found < n:
            if node == 0:
                if idle:
                    break
                idle = True
                node = nodes[0].prev
                continue
            before = nodes[node].prev
            if refs[node - 1] == 1:
                idle = False
                if self.used[node - 1]:
                    self.used[node - 1] = 0
                else:
                    list_unlink(nodes, node)
                    victims[found] = node - 1
                    found += 1
            node = before
        self.hand[0] = node
        return found
