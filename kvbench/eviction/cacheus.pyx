"""Cacheus: LeCaR with better experts and a learning rate that finds itself.

``SR-LRU`` keeps apart the blocks stored lately (list SR) and those used again (list R): a used
block goes to R, what R has too many of is demoted to SR, and the back of SR is this expert's
victim. Uses of demoted blocks enlarge R, returns of victims that were never used enlarge SR.
``CR-LFU`` names the block used least and, among these, the one that came to it last; counts
outlive an eviction as long as the key is remembered. Where the experts differ one is drawn by
weight, and pays exp(-rate) when its victim returns. Every ``capacity`` accesses the rate moves on
in the direction that raised the hit rate; after ten rounds without success it is drawn anew.

Source: Rodriguez et al., "Learning cache replacement with CACHEUS", FAST 2021, with the sizes of
libCacheSim 0.3.5 (SR and R half each at first, ghosts of half the capacity each). Draws come from
the policy's seeded stream. Cost: O(1) amortised, O(distinct counts) for a block that returns;
71 bytes a slot.
"""

cimport cython
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_oldest, ghost_push, ghost_remove
from kvbench.eviction.onevictim cimport OneVictimPolicy
from kvbench.eviction.queues cimport Mark, queue_move, queue_push, queue_search, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.eviction.uses cimport Uses, uses_add, uses_init, uses_of, uses_raise, uses_remove, uses_youngest
from kvbench.rng cimport Stream, stream_below, stream_seed, stream_uniform

cdef enum:
    RECENT = 0     # list SR, and the expert SR-LRU
    REUSED = 1     # list R
    FREQUENT = 1   # the expert CR-LFU
    DEMOTED = 2    # it was in R before
    FRESH = 4      # it was never used since it was first stored
    MOST_USES = (1 << 30) - 1
    PATIENCE = 10  # unproductive rounds before the rate is drawn anew

cdef double LEAST_RATE = 0.001
cdef double FLOOR_RATE = 0.0001
cdef double MOST_WEIGHT = 0.99  # an expert that is never heard could not recover


cdef struct State:
    double weights[2]
    double rate
    double last_rate
    double last_hit_rate
    Stream stream
    int64_t sizes[2]
    int64_t recent_share
    int64_t demoted      # resident blocks that are marked so
    int64_t fresh        # ghosts of SR-LRU that are marked so
    int64_t accesses     # of this round
    int64_t hits
    int32_t idle         # rounds without success in a row
    int32_t judged
    uint64_t judged_key  # the key whose ghost has been dealt with, because room was made for it
    int32_t returns
    int32_t uses         # with which it returns


@cython.final
cdef class Cacheus(OneVictimPolicy):
    """``marks[slot]`` is the list of a slot, with DEMOTED and FRESH."""

    cdef Node* nodes
    cdef uint8_t* marks
    cdef Uses uses
    cdef State* state
    cdef Ghost ghosts[2]
    cdef Mark oldest[2]

    def __cinit__(self, context):
        self.one_by_one = True
        self.nodes = queues_make(self, self.capacity, 2)
        self.marks = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        uses_init(&self.uses, self, self.capacity)
        self.state = <State*>self.allocate(1, sizeof(State))
        self.state.weights[RECENT] = self.state.weights[FREQUENT] = 0.5
        self.state.recent_share = max(1, self.capacity // 2)
        stream_seed(&self.state.stream, <uint64_t>context.seed)
        self.draw_rate()
        self.state.last_rate = self.state.rate
        ghost_init(&self.ghosts[RECENT], self, self.capacity // 2)
        ghost_init(&self.ghosts[FREQUENT], self, self.capacity // 2)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.count_access(True)
            if uses_of(&self.uses, slots[i]) < MOST_USES:
                uses_raise(&self.uses, slots[i])
            if self.marks[slots[i]] & 1 == REUSED:
                queue_move(self.nodes, self.capacity + REUSED, slots[i])
                continue
            if self.marks[slots[i]] & DEMOTED:
                self.enlarge(REUSED)
            self.leave(slots[i])
            self.put(slots[i], REUSED)
            self.demote()
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef State* state = self.state
        cdef int32_t i
        for i in range(n):
            self.judge(self.view.keys[slots[i]])
            state.judged = False
            uses_add(&self.uses, slots[i], state.uses)
            if state.returns or (
                # While the cache fills, R takes what SR has no room for.
                state.sizes[RECENT] >= state.recent_share
                and state.sizes[RECENT] + state.sizes[REUSED] < self.capacity
                and state.sizes[REUSED] < self.capacity - state.recent_share
            ):
                self.put(slots[i], REUSED)
                self.demote()
            else:
                self.put(slots[i], RECENT | FRESH)
        return 0

    cdef void expect_incoming(self) noexcept nogil:
        self.judge(self.view.incoming)

    # -- the lists -----------------------------------------------------------------------------

    cdef void put(self, int32_t slot, int32_t marks) noexcept nogil:
        self.marks[slot] = marks
        self.state.sizes[marks & 1] += 1
        queue_push(self.nodes, self.capacity + (marks & 1), slot)

    cdef void leave(self, int32_t slot) noexcept nogil:
        self.state.sizes[self.marks[slot] & 1] -= 1
        self.state.demoted -= (self.marks[slot] & DEMOTED) != 0
        list_unlink(self.nodes, slot)

    cdef void forget(self, int32_t slot) noexcept nogil:
        self.leave(slot)
        uses_remove(&self.uses, slot)

    cdef void demote(self) noexcept nogil:
        """What R has too many of goes to SR."""
        cdef int32_t slot
        while self.state.sizes[REUSED] > self.capacity - self.state.recent_share:
            slot = self.nodes[self.capacity + REUSED].prev
            self.oldest[REUSED].stirs = 0
            self.leave(slot)
            self.put(slot, RECENT | DEMOTED)
            self.state.demoted += 1

    cdef void enlarge(self, int32_t which) noexcept nogil:
        """Move the border between SR and R by the proportion of what speaks for either."""
        cdef State* state = self.state
        cdef double demoted = max(1, state.demoted)
        cdef double fresh = max(1, state.fresh)
        cdef int64_t share
        if which == REUSED:
            share = state.recent_share - max(1, <int64_t>(fresh / demoted + 0.5))
        else:
            share = state.recent_share + max(1, <int64_t>(demoted / fresh + 0.5))
        state.recent_share = max(1, min(share, <int64_t>self.capacity - 1))

    # -- the experts ---------------------------------------------------------------------------

    cdef int32_t evict_one(self) noexcept nogil:
        cdef int32_t[2] choice
        cdef int32_t expert
        choice[RECENT] = self.oldest_of(RECENT)
        if choice[RECENT] < 0:
            choice[RECENT] = self.oldest_of(REUSED)
        if choice[RECENT] < 0:
            return -1
        choice[FREQUENT] = uses_youngest(&self.uses, self.view)
        if choice[RECENT] == choice[FREQUENT]:
            self.forget(choice[RECENT])
            return choice[RECENT]
        expert = RECENT if stream_below(&self.state.stream, 100) / 100.0 < self.state.weights[RECENT] else FREQUENT
        self.remember(expert, choice[expert])
        self.forget(choice[expert])
        return choice[expert]

    cdef int32_t oldest_of(self, int32_t part) noexcept nogil:
        return queue_search(self.nodes, self.capacity + part, self.view, &self.oldest[part])

    cdef void remember(self, int32_t expert, int32_t slot) noexcept nogil:
        cdef Ghost* ghost = &self.ghosts[expert]
        cdef bint fresh = expert == RECENT and self.marks[slot] & FRESH
        if ghost.capacity == 0:
            return
        if ghost.counts.used == ghost.capacity:
            self.state.fresh -= ghost.values[ghost_oldest(ghost)] & 1
        self.state.fresh += fresh
        ghost_push(ghost, self.view.keys[slot], 2 * uses_of(&self.uses, slot) + fresh)

    cdef void judge(self, uint64_t key) noexcept nogil:
        """Take a missing key off the ghost lists; the expert that let it go pays."""
        cdef State* state = self.state
        cdef int32_t expert, entry, value
        if state.judged and state.judged_key == key:
            return
        state.judged = True
        state.judged_key = key
        state.returns = False
        state.uses = 1
        self.count_access(False)
        for expert in range(2):
            entry = ghost_find(&self.ghosts[expert], key)
            if entry == 0:
                continue
            value = self.ghosts[expert].values[entry]
            ghost_remove(&self.ghosts[expert], entry)
            if value & 1:
                self.enlarge(RECENT)
                state.fresh -= 1
            state.returns = True
            state.uses = min((value >> 1) + 1, MOST_USES)
            self.regret(expert)
            return

    cdef void regret(self, int32_t expert) noexcept nogil:
        cdef double* weights = self.state.weights
        weights[expert] *= exp(-self.state.rate)
        weights[RECENT] /= weights[RECENT] + weights[FREQUENT]
        weights[RECENT] = max(1 - MOST_WEIGHT, min(weights[RECENT], MOST_WEIGHT))
        weights[FREQUENT] = 1 - weights[RECENT]

    # -- the learning rate ---------------------------------------------------------------------

    cdef void draw_rate(self) noexcept nogil:
        self.state.rate = LEAST_RATE + (1 - LEAST_RATE) * stream_uniform(&self.state.stream)

    cdef void count_access(self, bint hit) noexcept nogil:
        self.state.hits += hit
        self.state.accesses += 1
        if self.state.accesses == self.capacity:
            self.adapt_rate()
            self.state.accesses = self.state.hits = 0

    cdef void adapt_rate(self) noexcept nogil:
        """One round is over: go on if more was hit, turn round if less, start anew if nothing helps."""
        cdef State* state = self.state
        cdef double hit_rate = state.hits / <double>self.capacity
        cdef double gained = hit_rate - state.last_hit_rate
        cdef double moved = state.rate - state.last_rate
        cdef double rate = state.rate
        cdef double slope = gained * moved
        if slope != 0:
            rate += fabs(rate * moved) if slope > 0 else -fabs(rate * moved)
            rate = min(rate, 1.0)
            if rate <= LEAST_RATE:
                rate = FLOOR_RATE
            state.idle = 0
        elif hit_rate == 0 or gained < 0:
            state.idle += 1
        state.last_rate = state.rate
        state.last_hit_rate = hit_rate
        state.rate = rate
        if state.idle >= PATIENCE:
            state.idle = 0
            self.draw_rate()
