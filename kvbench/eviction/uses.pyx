"""Blocks ordered by their number of uses (see uses.pxd)."""

from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node


cdef int uses_init(Uses* uses, EvictionPolicy policy, int32_t slots) except -1:
    """No blocks yet; 32 bytes a slot."""
    # A block on its way may need a bucket before its old one is given up.
    cdef size_t buckets = <size_t>slots + 2
    uses.slots = slots
    uses.nodes = <Node*>policy.allocate(slots + buckets, sizeof(Node))
    uses.order = <Node*>policy.allocate(buckets, sizeof(Node))
    uses.counts = <int32_t*>policy.allocate(buckets, sizeof(int32_t))
    uses.buckets = <int32_t*>policy.allocate(slots, sizeof(int32_t))
    uses.spare = <Buckets*>policy.allocate(1, sizeof(Buckets))
    return 0
