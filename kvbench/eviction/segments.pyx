"""A segmented LRU (see segments.pxd)."""

from libc.stdint cimport int32_t, uint8_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node


cdef int segments_init(
    Segments* parts, EvictionPolicy policy, Node* nodes, uint8_t* where, int32_t first, int32_t count
) except -1:
    """Empty segments; the caller sets their shares."""
    parts.nodes = nodes
    parts.where = where
    parts.segments = <Segment*>policy.allocate(count, sizeof(Segment))
    parts.first = first
    parts.count = count
    return 0
