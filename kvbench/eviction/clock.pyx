"""CLOCK (second chance, FIFO with reinsertion): a queue in order of storing with a small counter
a block. A hit raises the counter; the oldest block goes back to the young end, with one less on
its counter, until the counter is 0.

Source: Corbató, "A paging experiment with the Multics system", 1968; counters of several bits as
in libCacheSim 0.3.5 (``init-freq``, ``n-bit-counter``). Cost: O(1) a touched or inserted block,
O(1) amortised an evicted one; 9 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t

from kvbench.eviction.slotlist cimport ListPolicy, Node, list_push_many, list_splice_front, list_unlink

from kvbench.errors import ConfigError


@cython.final
cdef class Clock(ListPolicy):
    """Blocks that return to the young end do so in runs, each moved as one splice."""

    cdef uint8_t* counters
    cdef uint8_t first
    cdef uint8_t most

    def __cinit__(self, context, *, int init_freq=0, int bits=1):
        if not 1 <= bits <= 8:
            raise ConfigError(f"clock: bits = {bits} is not within 1 … 8")
        if not 0 <= init_freq < 1 << bits:
            raise ConfigError(f"clock: init_freq = {init_freq} does not fit into {bits} bits")
        self.first = init_freq
        self.most = (1 << bits) - 1
        self.counters = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.counters[slots[i]] += self.counters[slots[i]] < self.most
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.counters[slots[i]] = self.first
        list_push_many(self.nodes, slots, n)
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef Node* nodes = self.nodes
        cdef const int32_t* refs = self.view.refs
        cdef int32_t node = nodes[0].prev
        cdef int32_t before, found = 0
        cdef bint any_evictable = False
        while found < n:
            if node == 0:  # past the youngest; what was passed over may have come back behind it
                if not any_evictable:
                    break
                any_evictable = False
                node = nodes[0].prev
            elif refs[node - 1] != 1:
                node = nodes[node].prev
            elif self.counters[node - 1] > 0:
                any_evictable = True
                node = self.give_chance(node)
            else:
                any_evictable = True
                before = nodes[node].prev
                list_unlink(nodes, node)
                victims[found] = node - 1
                found += 1
                node = before
        return found

    cdef int32_t give_chance(self, int32_t oldest) noexcept nogil:
        """Move the run of used blocks that starts at ``oldest`` to the young end; returns the node
        that comes after it."""
        cdef Node* nodes = self.nodes
        cdef int32_t node = oldest
        cdef int32_t youngest, after
        while node != 0 and self.counters[node - 1] > 0 and self.view.refs[node - 1] == 1:
            self.counters[node - 1] -= 1
            youngest = node
            node = nodes[node].prev
        if node != 0:
            after = nodes[oldest].next
            nodes[node].next = after
            nodes[after].prev = node
            list_splice_front(nodes, youngest, oldest)
        return node
