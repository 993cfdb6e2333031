"""Victims: the half of a tier that has its policy give up blocks, and checks each one."""

cimport cython
from libc.stdint cimport int32_t

from kvbench.cache.events cimport EVICTED
from kvbench.cache.slots cimport SlotStore

from kvbench.errors import PolicyError


cdef class VictimStore(SlotStore):
    """Base of :class:`kvbench.cache.tier.Tier`: slots, and how they are emptied by eviction."""

    @cython.final
    cdef int evict(self, int32_t n, int32_t* victims) except -1 nogil:
        """Have the policy give up exactly ``n`` blocks; a policy that errs stops the replay."""
        cdef int32_t found = self.policy.evict_slots(n, victims)
        self.take_victims(victims, found)
        if found < n:
            self.too_few(found, n)
        return 0

    @cython.final
    cdef int too_few(self, int32_t found, int32_t n) except -1 nogil:
        with gil:
            raise PolicyError(
                f"{type(self.policy).__name__} gave up {found} of {n} blocks of tier {self.name}, "
                f"of whose {self.used:,} blocks {self.pinned:,} are pinned"
            )

    @cython.final
    cdef int take_victims(self, const int32_t* victims, int32_t found) except -1 nogil:
        """Empty the slots that the policy gave up; the first that it may not give up stops the replay."""
        cdef int32_t good = 0
        while good < found and 0 <= victims[good] < self.size and self.refs[victims[good]] == 1:
            self.refs[victims[good]] = 0
            good += 1
        self.give_up(victims, good)
        self.evicted += good
        if good < found:
            self.refuse(victims[good])
        return 0

    @cython.final
    cdef int refuse(self, int32_t slot) except -1 nogil:
        with gil:
            if not 0 <= slot < self.size:
                state = f"tier {self.name} has slots 0 to {self.size - 1}"
            else:
                state = "it is free" if self.refs[slot] == 0 else "it is pinned"
            raise PolicyError(f"{type(self.policy).__name__} evicted slot {slot}: {state}")

    cdef int give_up(self, const int32_t* victims, int32_t n) except -1 nogil:
        """Empty the slots of victims, which nobody refers to any more."""
        return self.release_slots(victims, n, EVICTED)
