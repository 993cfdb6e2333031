"""Marconi: evict the leaf with the lowest recency + alpha × FLOPs that it saves per byte.

After arXiv 2411.19379 (E-82), for key-value blocks: they have one size, so what a byte saves grows
with depth alone. A token at position t costs 8h² + 6hf + 4ht FLOPs a layer (h ``hidden``, f
``ffn``: projections, gated feed-forward part, attention over what is before it). ``alpha`` says
how many turnovers of the tier (capacity blocks used) one more unit is worth, a unit being the
FLOPs of a token at position 0; alpha = 0 is leaf LRU. The paper's normalisation over the resident
set, its tuning of alpha and its states of hybrid models are left out. A block counts as 16 tokens
where the trace does not say. Cost: O(1) a touched inner block, O(log leaves) otherwise; 64 bytes a
slot.
"""

cimport cython
from libc.stdint cimport int32_t

from kvbench.eviction.heap cimport double_key
from kvbench.eviction.leaf cimport LeafPolicy, leaf_born, leaf_place

cdef enum:
    USUAL_BLOCK_TOKENS = 16


@cython.final
cdef class Marconi(LeafPolicy):
    """Ranked by a number that does not change until the next use."""

    cdef double worth  # turnovers a block of depth

    def __cinit__(self, context, *, double alpha=1.0, int hidden=4096, int ffn=14336):
        cdef double tokens = context.block_tokens or USUAL_BLOCK_TOKENS
        self.worth = alpha * tokens * 2.0 / (4.0 * hidden + 3.0 * ffn)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        cdef double recency
        for k in range(n):
            self.counts.clock += 1
            recency = <double>self.counts.clock / self.capacity
            leaf_place(
                self, slots[k], k,
                double_key(recency + self.worth * (self.view.depth + k * self.view.step)), self.counts.clock,
            )
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t k
        for k in range(n):
            leaf_born(self, slots[k], k)
        return self.touch_slots(slots, n)
