"""Workload-aware: evict the block that is least likely to be used again within a block's life.

After "KVCache cache in the wild", arXiv 2506.02634, ATC'25 (E-81). Blocks belong to the category
of the request that used them last: its type and turn (eight of each; later ones share the last),
as far as the trace has them. For each category the reuse times seen in the cache give, streaming,
the probability p that a block is used again and the rate r of an exponential time until then:
p = (reuses + 1) / (uses + 2), r = (reuses + 1) / (sum of reuse times + life). After t seconds the
probability of a use within the next ``life`` seconds is p · (e^(−r t) − e^(−r (t + life))), where
life is the average time from last use to eviction (each eviction weighs 1/64). Ties: the larger
position goes first. In one category the oldest use is the least likely, so only the categories'
oldest blocks are compared. Reuses after an eviction are not seen. Statistics of a category are
halved at 2^20 uses. Cost: O(1) a use, O(categories) an eviction; 24 bytes a slot.
"""

cimport cython
from libc.math cimport exp
from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_evictable, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

cdef enum:
    KINDS = 8
    CATEGORIES = 64
    USES_A_HALVING = 1 << 20
    EVICTIONS_A_LIFE = 64


cdef struct Fit:
    double uses
    double reuses
    double seconds


cdef struct Life:
    double seconds
    bint known


cdef struct Use:
    int64_t time_ns
    int32_t position
    int32_t category


@cython.final
cdef class WorkloadAware(EvictionPolicy):
    """One queue a category, oldest use at the back."""

    cdef Node* queues
    cdef Use* used
    cdef Fit* fits
    cdef Life* life

    def __cinit__(self, context):
        self.queues = queues_make(self, self.capacity, CATEGORIES)
        self.used = <Use*>self.allocate(self.capacity, sizeof(Use))
        self.fits = <Fit*>self.allocate(CATEGORIES, sizeof(Fit))
        self.life = <Life*>self.allocate(1, sizeof(Life))

    cdef double age(self, int32_t slot) noexcept nogil:
        return (self.view.request.time_ns - self.used[slot].time_ns) * 1e-9

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        cdef Fit* fit
        for k in range(n):
            fit = &self.fits[self.used[slots[k]].category]
            fit.reuses += 1
            fit.seconds += self.age(slots[k])
            list_unlink(self.queues, slots[k])
        return self.insert_slots(slots, n)

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t kind = min(self.view.request.type + 1, KINDS - 1)
        cdef int32_t turn = min(self.view.request.turn + 1, KINDS - 1)
        cdef int32_t category = kind * KINDS + turn
        cdef int32_t k
        cdef Use* use
        cdef Fit* fit = &self.fits[category]
        for k in range(n):
            use = &self.used[slots[k]]
            use.time_ns = self.view.request.time_ns
            use.position = self.view.depth + k * self.view.step
            use.category = category
            queue_push(self.queues, self.capacity + category, slots[k])
        fit.uses += n
        if fit.uses >= USES_A_HALVING:
            fit.uses *= 0.5
            fit.reuses *= 0.5
            fit.seconds *= 0.5
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.queues, slots[i])
        return 0

    cdef double chance(self, int32_t slot) noexcept nogil:
        cdef Fit* fit = &self.fits[self.used[slot].category]
        cdef double life = self.life.seconds
        cdef double p = (fit.reuses + 1) / (fit.uses + 2)
        cdef double rate, age = self.age(slot)
        if fit.seconds + life <= 0:
            return p
        rate = (fit.reuses + 1) / (fit.seconds + life)
        return p * (exp(-rate * age) - exp(-rate * (age + life)))

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t[CATEGORIES] oldest
        cdef double[CATEGORIES] chances
        cdef int32_t category, best, slot, found = 0
        cdef double age
        for category in range(CATEGORIES):
            self.look(category, oldest, chances)
        while found < n:
            best = -1
            for category in range(CATEGORIES):
                if oldest[category] >= 0 and (best < 0 or chances[category] < chances[best] or (
                    chances[category] == chances[best]
                    and self.used[oldest[category]].position > self.used[oldest[best]].position
                )):
                    best = category
            if best < 0:
                break
            slot = oldest[best]
            list_unlink(self.queues, slot)
            victims[found] = slot
            found += 1
            self.look(best, oldest, chances)
        for slot in range(found):
            age = self.age(victims[slot])
            self.life.seconds += (age - self.life.seconds) / (EVICTIONS_A_LIFE if self.life.known else 1)
            self.life.known = True
        return found

    cdef void look(self, int32_t category, int32_t* oldest, double* chances) noexcept nogil:
        oldest[category] = queue_evictable(self.queues, self.capacity + category, self.view.refs)
        if oldest[category] >= 0:
            chances[category] = self.chance(oldest[category])
