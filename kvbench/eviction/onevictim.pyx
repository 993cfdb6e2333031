"""Base of policies that choose each victim by itself and look after it slot by slot."""

from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy


cdef class OneVictimPolicy(EvictionPolicy):
    """A subclass says in ``evict_one`` who goes next, and in ``forget`` how a slot leaves its lists."""

    cdef void expect_incoming(self) noexcept nogil:
        """Room is wanted for ``view.incoming``; called before the first victim of a call."""

    cdef int32_t evict_one(self) noexcept nogil:
        """Forget one evictable slot and return it; -1: there is none."""
        return -1

    cdef void forget(self, int32_t slot) noexcept nogil:
        """Forget a slot that somebody else emptied."""

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        self.expect_incoming()
        while found < n:
            victims[found] = self.evict_one()
            if victims[found] < 0:
                break
            found += 1
        return found
