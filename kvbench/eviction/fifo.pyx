"""FIFO: evict the block that was stored first, used since or not.

Source: folklore. Cost: O(1) an inserted or evicted block, nothing on a hit; 8 bytes a slot.
"""

from kvbench.eviction.slotlist cimport ListPolicy


cdef class Fifo(ListPolicy):
    """The list is the order of storing; a use changes nothing."""
