"""LIRS: what counts is the time between the last two uses of a block, not that since the last.

Blocks with short gaps are LIR and hold nearly all places; the others (HIR) share the rest, 1 %.
Stack ``S`` has all LIR blocks and whatever was used since the oldest LIR block was; so a block
that is used again while it is in S has a shorter gap than that one and takes its status. ``Q``
has the resident HIR blocks, whose oldest goes; if it is still in S its key stays there. ``N``
lists those keys in the order in which they left Q; beyond 2 × capacity entries of S the oldest
is forgotten.

Source: Jiang, Zhang, "LIRS: an efficient low inter-reference recency set replacement policy",
SIGMETRICS 2002, as libCacheSim 0.3.5 counts it (a HIR block that is used when no longer in S
gives up a LIR place, too). Cost: O(1) amortised; 95 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_oldest, ghost_push, ghost_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport (
    Mark,
    ghosts_of,
    mark_resume,
    queue_move,
    queue_push,
    queue_search,
    queues_make,
    share_of,
)
from kvbench.eviction.slotlist cimport Node, list_push_front, list_unlink

from kvbench.errors import ConfigError

cdef enum:
    LIR = 1
    STACKED = 2


cdef struct State:
    int64_t lirs
    int64_t queued       # in Q
    int64_t stacked      # in S
    uint64_t judged_key  # the key of which it is known already whether S had it
    int32_t judged
    int32_t known
    int32_t crowded      # a use has made Q too large


@cython.final
cdef class Lirs(EvictionPolicy):
    """``stack`` has node 1 + slot for a resident block, and ``ghosts_from`` + entry for a ghost
    of the list N. ``marks`` says whether a slot is LIR, and whether it is in S."""

    cdef Node* stack
    cdef Node* queue
    cdef uint8_t* marks
    cdef State* state
    cdef Ghost ghost
    cdef int32_t ghosts_from
    cdef int32_t hir_share
    cdef int32_t lir_share
    cdef Mark oldest  # in Q
    cdef Mark lowest  # LIR block in S

    def __cinit__(self, context, *, double hir=0.01):
        cdef int32_t ghosts = ghosts_of(self, 2.0) + 2
        if not 0 < hir < 1:
            raise ConfigError(f"lirs: hir = {hir:g} is not between 0 and 1")
        self.one_by_one = self.drops = True
        self.hir_share = share_of(self.capacity, hir)
        self.lir_share = self.capacity - self.hir_share
        self.ghosts_from = self.capacity
        self.stack = <Node*>self.allocate(<size_t>self.capacity + ghosts + 1, sizeof(Node))
        self.queue = queues_make(self, self.capacity, 1)
        self.marks = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        ghost_init(&self.ghost, self, ghosts)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.marks[slots[i]] & LIR:
                self.raise_lir(slots[i])
            else:
                self.touch_hir(slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        self.state.crowded = False
        for i in range(n):
            if self.judge(self.view.keys[slots[i]]):
                self.make_room_for_lir()
            self.state.judged = False
            if self.state.lirs < self.lir_share:
                self.marks[slots[i]] = LIR
                self.state.lirs += 1
            else:
                self.marks[slots[i]] = 0
                self.enqueue(slots[i])
            self.push_on_stack(slots[i])
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        self.judge(self.view.incoming)
        while found < n:
            victims[found] = self.evict_hir()
            if victims[found] < 0:
                victims[found] = self.evict_lir()
            if victims[found] < 0:
                break
            found += 1
        return found

    cdef int32_t drop_slot(self) except -2 nogil:
        cdef bint crowded = self.state.crowded
        self.state.crowded = False
        return self.evict_hir() if crowded and self.state.queued > self.hir_share else -1

    cdef bint judge(self, uint64_t key) noexcept nogil:
        """Whether S has the key of a missing block; it leaves S, to return with its block."""
        cdef int32_t entry
        if not self.state.judged or self.state.judged_key != key:
            entry = ghost_find(&self.ghost, key)
            if entry != 0:
                self.forget_ghost(entry)
            self.state.judged = True
            self.state.judged_key = key
            self.state.known = entry != 0
        return self.state.known

    # -- used blocks ---------------------------------------------------------------------------

    cdef void raise_lir(self, int32_t slot) noexcept nogil:
        if self.stack[slot + 1].prev == 0:
            return
        list_unlink(self.stack, slot + 1)
        list_push_front(self.stack, slot + 1)
        self.prune()

    cdef void touch_hir(self, int32_t slot) noexcept nogil:
        """In S: it becomes LIR. Only in Q: it enters S, and a LIR place is given up for it, too;
        with a Q of one place that is what pushes it out."""
        cdef bint rises = self.marks[slot] & STACKED and self.lir_share > 0
        if rises:
            self.dequeue(slot)
        else:
            queue_move(self.queue, self.capacity, slot)
        self.make_room_for_lir()
        self.state.crowded = True
        self.unstack(slot)
        if rises:
            self.marks[slot] = LIR
            self.state.lirs += 1
        self.push_on_stack(slot)

    cdef void make_room_for_lir(self) noexcept nogil:
        """The LIR block at the bottom of S becomes HIR if there is no place for one more."""
        cdef int32_t slot
        while self.state.lirs >= self.lir_share and self.state.lirs > 0:
            slot = self.stack[0].prev - 1
            self.lowest.stirs = 0
            self.unstack(slot)
            self.marks[slot] = 0
            self.state.lirs -= 1
            self.enqueue(slot)
            self.prune()

    # -- the stack and the queue ---------------------------------------------------------------

    cdef void push_on_stack(self, int32_t slot) noexcept nogil:
        if self.state.lirs == 0:
            return  # S goes down to the oldest LIR block: with none there is no S
        self.marks[slot] |= STACKED
        list_push_front(self.stack, slot + 1)
        self.state.stacked += 1
        while self.state.stacked > 2 * <int64_t>self.capacity and self.ghost.counts.used > 0:
            self.forget_ghost(ghost_oldest(&self.ghost))

    cdef void unstack(self, int32_t slot) noexcept nogil:
        if self.marks[slot] & STACKED:
            self.marks[slot] &= ~STACKED
            list_unlink(self.stack, slot + 1)
            self.state.stacked -= 1

    cdef void enqueue(self, int32_t slot) noexcept nogil:
        queue_push(self.queue, self.capacity, slot)
        self.state.queued += 1

    cdef void dequeue(self, int32_t slot) noexcept nogil:
        list_unlink(self.queue, slot)
        self.state.queued -= 1

    cdef void forget_ghost(self, int32_t entry) noexcept nogil:
        list_unlink(self.stack, self.ghosts_from + entry)
        self.state.stacked -= 1
        ghost_remove(&self.ghost, entry)

    cdef void prune(self) noexcept nogil:
        """The bottom of S is a LIR block."""
        cdef int32_t node = self.stack[0].prev
        while node != 0:
            if node > self.capacity:
                self.forget_ghost(node - self.ghosts_from)
            elif self.marks[node - 1] & LIR:
                return
            else:
                self.unstack(node - 1)
            node = self.stack[0].prev

    cdef void forget(self, int32_t slot) noexcept nogil:
        self.unstack(slot)
        if self.marks[slot] & LIR:
            self.state.lirs -= 1
            self.prune()
        else:
            self.dequeue(slot)
        self.marks[slot] = 0

    cdef int32_t evict_hir(self) noexcept nogil:
        """The oldest block of Q; if S has it, its key takes its place there."""
        cdef int32_t slot = queue_search(self.queue, self.capacity, self.view, &self.oldest)
        cdef int32_t node
        if slot < 0:
            return -1
        self.dequeue(slot)
        if self.marks[slot] & STACKED:
            node = self.ghosts_from + ghost_push(&self.ghost, self.view.keys[slot], 0)
            self.stack[node] = self.stack[slot + 1]
            self.stack[self.stack[node].prev].next = node
            self.stack[self.stack[node].next].prev = node
        self.marks[slot] = 0
        return slot

    cdef int32_t evict_lir(self) noexcept nogil:
        """With all of Q pinned: the lowest LIR block that may go."""
        cdef int32_t node = self.stack[mark_resume(&self.lowest, 0, self.view)].prev
        while node != 0:
            if node <= self.capacity and self.marks[node - 1] & LIR:
                if self.view.refs[node - 1] == 1:
                    self.forget(node - 1)
                    return node - 1
                self.lowest.node = node
            node = self.stack[node].prev
        return -1
