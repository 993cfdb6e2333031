"""Several queues over the same slots (see queues.pxd), and the sizes of parts of a cache."""

from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node

from kvbench.errors import ConfigError

cdef enum:
    MOST_GHOSTS = 1 << 30


cdef Node* queues_make(EvictionPolicy policy, int32_t slots, int32_t queues) except NULL:
    """Empty queues over ``slots`` slots; 8 bytes a slot."""
    cdef Node* nodes = <Node*>policy.allocate(<size_t>slots + queues, sizeof(Node))
    cdef int32_t head
    for head in range(slots, slots + queues):
        nodes[head].prev = nodes[head].next = head
    return nodes


cdef int32_t share_of(int32_t capacity, double ratio) except -1:
    """A part of a cache, cut to whole blocks; at least one, so that small caches work too."""
    return max(1, <int32_t>(capacity * ratio))


cdef int32_t ghosts_of(EvictionPolicy policy, double ratio) except -1:
    """How many keys a ghost list of ``ratio`` times the capacity holds. Raises ConfigError where
    that is more than can be numbered."""
    if not 0 <= policy.capacity * ratio < MOST_GHOSTS:
        raise ConfigError(
            f"{type(policy).__name__}: a ghost list of {ratio:g} times {policy.capacity:,} blocks is not possible; "
            f"it holds at most {MOST_GHOSTS:,} keys"
        )
    return <int32_t>(policy.capacity * ratio)
