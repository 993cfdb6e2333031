"""KVBM's lineage pool: blocks without resident children go first, older ones before younger.

Source: ai-dynamo/dynamo `lib/kvbm-logical` (E-59), the default of its inactive pools. ``tick``
orders leaves by when they were last let go of, ``fifo`` by when they were stored. A block that
becomes a leaf goes by its old tick. KVBM remembers lineage across a block that is missing in the
middle; here the block before the gap is a leaf. Cost: O(1) a touched inner block, O(log leaves)
otherwise; 64 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.leaf cimport LeafPolicy, leaf_born, leaf_place


@cython.final
cdef class KvbmLineage(LeafPolicy):
    """``order`` is ``tick`` or ``fifo``."""

    cdef bint by_tick

    def __cinit__(self, context, *, str order="tick"):
        self.by_tick = order == "tick"

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            if self.by_tick:
                self.counts.clock += 1
                leaf_place(self, slots[k], k, self.counts.clock, 0)
            else:
                leaf_place(self, slots[k], k, self.ranks[slots[k]].key, 0)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            leaf_born(self, slots[k], k)
            self.counts.clock += 1
            leaf_place(self, slots[k], k, self.counts.clock, 0)
        return 0
