"""Keep: nothing is ever evicted; a full tier refuses what does not fit.

Source: OPAL's storage manager before its eviction branch (rows OP-31, OP-33); the floor under
every policy. Cost: none.
"""

cimport cython

from kvbench.eviction.policy cimport EvictionPolicy


@cython.final
cdef class Keep(EvictionPolicy):
    """Keeps no order and no state."""

    def __cinit__(self, context):
        self.never_evicts = True
