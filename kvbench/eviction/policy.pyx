"""What an eviction policy is: something that orders the slots of one tier.

The tier owns residency, capacity, pins and counting. It tells its policy, once for each run of
slots of a request, what was touched, inserted or removed, and asks it for victims. Slots are
small integers below the tier's capacity; a slot that was evicted will be used again for another
block.

``refs[slot]`` is 0 for a free slot, 1 for a resident block and more than 1 for a pinned one.
**A policy may give away only slots whose count is exactly 1.** The tier checks every victim, so
a policy that gets this wrong stops the replay with a message; it cannot corrupt the accounting.
"""

from libc.stdint cimport int32_t
from libc.string cimport memcpy

from kvbench.memory cimport Int32Memory

from kvbench.errors import PolicyError


class PolicyContext:
    """What a policy is told when it is made.

    ``capacity``  number of slots of its tier; slots are 0 … capacity-1.
    ``seed``      64-bit seed of the policy's own random stream; the same in every run with the
                  same seed, whatever else is drawn elsewhere.
    """

    __slots__ = ("capacity", "seed")

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self.seed = seed


cdef class EvictionPolicy:
    """Base of all policies; compiled ones override the ``*_slots`` methods declared in policy.pxd.

    Python classes derive from :class:`PythonPolicy` instead.
    """

    def __cinit__(self, context, *args, **kwargs):
        self.capacity = context.capacity
        self.refs = NULL

    cpdef bind(self, Int32Memory refs):
        """Tie the policy to its tier; a policy serves one tier only."""
        if self.refs != NULL:
            raise PolicyError(f"{type(self).__name__} already serves a tier; make one policy for each tier")
        self.refs_memory = refs
        self.refs = refs.data

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        """``n`` resident slots were used, oldest use first."""
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        """``n`` slots were filled, in this order."""
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        """``n`` slots were emptied by somebody else than this policy; forget them."""
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        """Forget ``n`` evictable slots and write them to ``victims``, first victim first.

        Returns how many were found: fewer than ``n`` only if fewer are evictable.
        """
        return 0


cdef class PythonPolicy(EvictionPolicy):
    """A policy written in Python. Override ``touch``, ``insert``, ``remove`` and ``evict``.

    The constructor takes the :class:`PolicyContext` and the declared parameters by keyword.
    Methods get the slots of a whole request as a read-only buffer of 32-bit integers: iterate
    it, or wrap it with ``numpy.asarray`` without a copy. The buffer's *contents* are good until
    the method returns; copy what is to be kept.
    """

    def __cinit__(self, context, *args, **kwargs):
        self.scratch = Int32Memory(256)

    def __init__(self, context):
        pass

    @property
    def refs(self):
        """Read-only view: ``refs[slot]`` is 0 if free, 1 if evictable, more if pinned."""
        if self.refs_memory is None:
            raise PolicyError(f"{type(self).__name__}: refs can be read only once the policy serves a tier")
        return memoryview(self.refs_memory)

    def evictable(self, int32_t slot):
        """True if ``slot`` holds a block that is not pinned."""
        if self.refs_memory is None or not 0 <= slot < self.refs_memory.size:
            return False
        return self.refs_memory.data[slot] == 1

    def touch(self, slots):
        """The blocks in ``slots`` were used, in this order (the last one is the most recent)."""

    def insert(self, slots):
        """Blocks were stored in ``slots``, in this order."""
        raise NotImplementedError(f"{type(self).__name__} must define insert(slots)")

    def remove(self, slots):
        """The blocks in ``slots`` are gone for another reason than eviction; forget them."""
        raise NotImplementedError(f"{type(self).__name__} must define remove(slots)")

    def evict(self, n):
        """Choose ``n`` evictable slots, forget them, and return them, first victim first."""
        raise NotImplementedError(f"{type(self).__name__} must define evict(n)")

    cdef object slots_view(self, const int32_t* slots, int32_t n):
        # A view may outlive the call in the hands of a careless policy. So the slots are copied
        # into memory that lives as long as any view of it; a larger request gets new memory.
        if self.scratch.size < n:
            self.scratch = Int32Memory(max(n, 2 * self.scratch.size))
        memcpy(self.scratch.data, slots, n * sizeof(int32_t))
        return memoryview(self.scratch)[:n]

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        with gil:
            self.touch(self.slots_view(slots, n))
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        with gil:
            self.insert(self.slots_view(slots, n))
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        with gil:
            self.remove(self.slots_view(slots, n))
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        with gil:
            for slot in self.evict(n):
                if found == n:
                    raise PolicyError(f"{type(self).__name__}.evict({n}) returned more than {n} slots")
                try:
                    victims[found] = slot
                except (OverflowError, TypeError):
                    raise PolicyError(
                        f"{type(self).__name__}.evict({n}) returned {slot!r}, which is no slot"
                    ) from None
                found += 1
        return found
