"""Ghost lists: bounded memories of evicted keys (see ghost.pxd)."""

from libc.stdint cimport int32_t, uint64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node


cdef int ghost_init(Ghost* ghost, EvictionPolicy policy, int32_t capacity) except -1:
    """Prepare an empty list for at most ``capacity`` keys; about 30 bytes a key, used or not."""
    cdef size_t entries = <size_t>capacity + 1
    ghost.capacity = capacity
    ghost.places = <uint64_t>capacity + capacity // 2 + 2
    ghost.nodes = <Node*>policy.allocate(entries, sizeof(Node))
    ghost.keys = <uint64_t*>policy.allocate(entries, sizeof(uint64_t))
    ghost.values = <int32_t*>policy.allocate(entries, sizeof(int32_t))
    ghost.table = <int32_t*>policy.allocate(ghost.places, sizeof(int32_t))
    ghost.counts = <GhostCounts*>policy.allocate(1, sizeof(GhostCounts))
    return 0
