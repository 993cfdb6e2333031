"""LeCaR: two experts, LRU and LFU; the one whose victims return is listened to less.

Where the experts name different victims one of them is drawn by weight, and the key of its
victim is remembered as its doing. When the key returns after t accesses the expert's weight is
multiplied by exp(-rate × discount^t): regret for what returns soon is strong.

Source: Vietri et al., "Driving cache replacement with ML-based LeCaR", HotStorage 2018, with the
constants of libCacheSim 0.3.5 (rate 0.45, discount 0.005^(1 / capacity), ghosts of half the
capacity each; counts are forgotten with the block). Draws come from the policy's seeded stream.
Cost: O(1) a touched, inserted or evicted block; 70 bytes a slot.
"""

cimport cython
from libc.math cimport exp, pow
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.onevictim cimport OneVictimPolicy
from kvbench.eviction.queues cimport queue_evictable, queue_move, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.eviction.uses cimport Uses, uses_add, uses_init, uses_oldest, uses_raise, uses_remove
from kvbench.rng cimport Stream, stream_below, stream_seed

from kvbench.errors import ConfigError

cdef enum:
    LRU = 0
    LFU = 1


cdef struct State:
    double weights[2]
    Stream stream
    uint32_t now         # accesses so far, modulo 2^32: only differences are used
    int32_t judged
    uint64_t judged_key  # the key whose ghost has been dealt with, because room was made for it


@cython.final
cdef class LeCar(OneVictimPolicy):
    """``recency`` and ``uses`` order the same slots; ghosts keep the time of their eviction."""

    cdef Node* recency
    cdef Uses uses
    cdef State* state
    cdef Ghost ghosts[2]
    cdef double rate
    cdef double discount

    def __cinit__(self, context, *, double rate=0.45, double lru=0.5):
        if not 0 <= lru <= 1:
            raise ConfigError(f"lecar: lru = {lru:g} is not between 0 and 1")
        self.one_by_one = True
        self.rate = rate
        self.discount = pow(0.005, 1.0 / self.capacity)
        self.recency = queues_make(self, self.capacity, 1)
        uses_init(&self.uses, self, self.capacity)
        self.state = <State*>self.allocate(1, sizeof(State))
        self.state.weights[LRU] = lru
        self.state.weights[LFU] = 1 - lru
        stream_seed(&self.state.stream, <uint64_t>context.seed)
        ghost_init(&self.ghosts[LRU], self, self.capacity // 2)
        ghost_init(&self.ghosts[LFU], self, self.capacity // 2)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.state.now += 1
            queue_move(self.recency, self.capacity, slots[i])
            uses_raise(&self.uses, slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.judge(self.view.keys[slots[i]])
            self.state.judged = False
            queue_push(self.recency, self.capacity, slots[i])
            uses_add(&self.uses, slots[i], 1)
        return 0

    cdef void expect_incoming(self) noexcept nogil:
        self.judge(self.view.incoming)

    cdef void forget(self, int32_t slot) noexcept nogil:
        list_unlink(self.recency, slot)
        uses_remove(&self.uses, slot)

    cdef void judge(self, uint64_t key) noexcept nogil:
        """Take a missing key off the ghost lists; the expert that let it go pays."""
        cdef int32_t expert, entry
        if self.state.judged and self.state.judged_key == key:
            return
        self.state.judged = True
        self.state.judged_key = key
        self.state.now += 1
        for expert in range(2):
            entry = ghost_find(&self.ghosts[expert], key)
            if entry != 0:
                self.regret(expert, self.state.now - <uint32_t>self.ghosts[expert].values[entry])
                ghost_remove(&self.ghosts[expert], entry)
                return

    cdef void regret(self, int32_t expert, uint32_t passed) noexcept nogil:
        cdef double* weights = self.state.weights
        cdef double total
        # The summand keeps a weight from vanishing for good.
        weights[expert] = weights[expert] * exp(-self.rate * pow(self.discount, passed)) + 1e-10
        total = weights[LRU] + weights[LFU]
        weights[LRU] /= total
        weights[LFU] /= total

    cdef int32_t evict_one(self) noexcept nogil:
        cdef int32_t[2] choice
        cdef int32_t expert
        choice[LRU] = queue_evictable(self.recency, self.capacity, self.view.refs)
        if choice[LRU] < 0:
            return -1
        choice[LFU] = uses_oldest(&self.uses, self.view.refs)
        if choice[LRU] == choice[LFU]:
            self.forget(choice[LRU])
            return choice[LRU]
        expert = LRU if stream_below(&self.state.stream, 100) / 100.0 < self.state.weights[LRU] else LFU
        self.forget(choice[expert])
        ghost_push(&self.ghosts[expert], self.view.keys[choice[expert]], <int32_t>self.state.now)
        return choice[expert]
