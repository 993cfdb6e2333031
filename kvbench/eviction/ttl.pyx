"""TTL: a block expires ``seconds`` after it was stored (``mode=fixed``) or last used
(``mode=sliding``). Expired blocks go first, the one that expired longest ago before the others;
when there are none, the block whose last use is oldest. A block is not expired at the very
nanosecond at which its time is up, but after it.

Time is the arrival of the request being served. Expired blocks that are not pinned leave before
each lookup, so what is asked for after its time is a miss.

Source: as in Redis and in libCacheSim's TTL support (fixed), over LRU. Cost: O(1) a touched,
inserted or evicted block; 16 bytes a slot, in fixed mode 24.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.slotlist cimport ListPolicy, Node, list_evict_back, list_push_front, list_unlink

from kvbench.errors import ConfigError

cdef enum:
    NS_PER_SECOND = 1_000_000_000
    LONGEST = 2_000_000_000  # seconds


@cython.final
cdef class Ttl(ListPolicy):
    """``nodes`` is the order of last use, ``ages`` the order of expiry; sliding, they are one."""

    cdef Node* ages
    cdef int64_t* deadlines
    cdef int64_t lifetime_ns
    cdef bint sliding

    def __cinit__(self, context, *, double seconds, str mode):
        if not 0 <= seconds <= LONGEST:
            raise ConfigError(f"ttl: seconds = {seconds:g} is not within 0 … {LONGEST}")
        self.expires = True
        self.lifetime_ns = round(seconds * NS_PER_SECOND)
        self.sliding = mode == "sliding"
        self.ages = self.nodes
        if not self.sliding:
            self.ages = <Node*>self.allocate(<size_t>self.capacity + 1, sizeof(Node))
        self.deadlines = <int64_t*>self.allocate(self.capacity, sizeof(int64_t))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.nodes, slots[i] + 1)
            list_push_front(self.nodes, slots[i] + 1)
            if self.sliding:
                self.deadlines[slots[i]] = self.view.request.time_ns + self.lifetime_ns
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_push_front(self.nodes, slots[i] + 1)
            if not self.sliding:
                list_push_front(self.ages, slots[i] + 1)
            self.deadlines[slots[i]] = self.view.request.time_ns + self.lifetime_ns
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.nodes, slots[i] + 1)
            if not self.sliding:
                list_unlink(self.ages, slots[i] + 1)
        return 0

    cdef int32_t drop_slot(self) except -2 nogil:
        cdef int32_t node = self.ages[0].prev
        cdef int32_t slot
        while node != 0 and self.deadlines[node - 1] < self.view.request.time_ns:
            slot = node - 1
            if self.view.refs[slot] == 1:
                self.remove_slots(&slot, 1)
                return slot
            node = self.ages[node].prev
        return -1

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found, i, oldest
        for found in range(n):
            victims[found] = self.drop_slot()
            if victims[found] < 0:
                break
        else:
            return n
        oldest = list_evict_back(self.nodes, self.view.refs, n - found, victims + found)
        if not self.sliding:
            for i in range(found, found + oldest):
                list_unlink(self.ages, victims[i] + 1)
        return found + oldest
