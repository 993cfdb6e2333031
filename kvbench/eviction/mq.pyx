"""MQ: LRU queues by number of uses (1, 2–3, 4–7, …); what is not used for a while sinks.

A block is in queue floor(log2 uses). One that was not used for ``lifetime`` accesses is moved to
the front of the queue below, one block of each queue an access. The back of the lowest queue
that is not empty goes; its number of uses is remembered in ``Qout`` and goes on from there when
its key returns.

Source: Zhou, Philbin, Li, "The multi-queue replacement algorithm for second level buffer
caches", USENIX ATC 2001, as libCacheSim 0.3.5 counts it. Cost: O(queues) a touched or inserted
block; 21 bytes a slot and 30 a remembered key, by default four a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport ghosts_of, queue_evictable, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

from kvbench.errors import ConfigError

cdef enum:
    MOST_QUEUES = 31
    MOST_USES = 0x7ffffffe


cdef struct Block:
    int64_t expiry
    int32_t uses


cdef struct State:
    int64_t now          # touched and inserted blocks so far
    uint64_t judged_key  # the key whose uses are known already, because room was made for it
    int32_t judged
    int32_t uses


@cython.final
cdef class Mq(EvictionPolicy):
    cdef Node* nodes
    cdef Block* blocks
    cdef State* state
    cdef Ghost ghost
    cdef int32_t queues
    cdef int64_t lifetime

    def __cinit__(self, context, *, int queues=8, long long lifetime=10_000, double qout=4.0):
        if not 1 <= queues <= MOST_QUEUES:
            raise ConfigError(f"mq: queues = {queues} is not between 1 and {MOST_QUEUES}")
        self.one_by_one = True
        self.queues = queues
        self.lifetime = lifetime
        self.nodes = queues_make(self, self.capacity, queues)
        self.blocks = <Block*>self.allocate(self.capacity, sizeof(Block))
        self.state = <State*>self.allocate(1, sizeof(State))
        ghost_init(&self.ghost, self, ghosts_of(self, qout))

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.blocks[slots[i]].uses < MOST_USES:
                self.blocks[slots[i]].uses += 1
            list_unlink(self.nodes, slots[i])
            self.enqueue(slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.blocks[slots[i]].uses = self.judge(self.view.keys[slots[i]]) + 1
            self.state.judged = False
            self.enqueue(slots[i])
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.nodes, slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        cdef int32_t victim, queue
        self.judge(self.view.incoming)
        for queue in range(self.queues):
            while found < n:
                victim = queue_evictable(self.nodes, self.capacity + queue, self.view.refs)
                if victim < 0:
                    break
                list_unlink(self.nodes, victim)
                ghost_push(&self.ghost, self.view.keys[victim], self.blocks[victim].uses)
                victims[found] = victim
                found += 1
        return found

    cdef int32_t judge(self, uint64_t key) noexcept nogil:
        """How often a missing key was used before it was evicted; 0 if it is not remembered."""
        cdef int32_t entry
        if not self.state.judged or self.state.judged_key != key:
            entry = ghost_find(&self.ghost, key)
            self.state.uses = 0
            if entry != 0:
                self.state.uses = self.ghost.values[entry]
                ghost_remove(&self.ghost, entry)
            self.state.judged = True
            self.state.judged_key = key
        return self.state.uses

    cdef void enqueue(self, int32_t slot) noexcept nogil:
        """To the front of the queue of its uses; then time goes on."""
        cdef int32_t queue = 0
        cdef int32_t uses = self.blocks[slot].uses >> 1
        while uses > 0 and queue < self.queues - 1:
            uses >>= 1
            queue += 1
        self.put(slot, queue)
        self.state.now += 1
        self.sink()

    cdef void put(self, int32_t slot, int32_t queue) noexcept nogil:
        self.blocks[slot].expiry = self.state.now + self.lifetime
        queue_push(self.nodes, self.capacity + queue, slot)

    cdef void sink(self) noexcept nogil:
        """The oldest block of each upper queue goes one queue down if its life is over."""
        cdef int32_t queue, slot
        for queue in range(1, self.queues):
            slot = self.nodes[self.capacity + queue].prev
            if slot < self.capacity and self.blocks[slot].expiry < self.state.now:
                list_unlink(self.nodes, slot)
                self.put(slot, queue - 1)
