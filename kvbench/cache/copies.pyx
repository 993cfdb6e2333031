"""Several copies of one block in a tier, as engines make them that never compare what they compute.

A request that computes a block which is resident stores a second one (vLLM). Lookups find the oldest.
A copy lies in a slot of its own, in its own place in the policy's order, under a key that nobody
asks for; when the block that lookups find is evicted, its oldest copy takes over the name. Events tell of
a copy by its own key, so that a log of them folds to what the tier holds: as many blocks as slots.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.hashing cimport mix64
from kvbench.memory cimport no_memory


cdef uint64_t nobodys_key(int64_t request, int32_t depth) noexcept nogil:
    """A key that no lookup asks for: a mix of a request's number and a position, alike in every run."""
    return mix64(mix64(<uint64_t>request) ^ 0x6e616d656c657373ULL ^ (<uint64_t>depth << 32)) | 1ULL << 63


cdef class CopyStore(Tier):
    """Base of :class:`kvbench.cache.stacked.StackedTier`; keeps copies with ``partial`` other than ``free``,
    which goes with a limited tier only."""

    def __cinit__(self, policy=None, *, str partial="free", **kwargs):
        if partial != "free":
            self.copy_facts = <CopyFacts*>calloc(self.size, sizeof(CopyFacts))
            if self.copy_facts == NULL:
                no_memory("tier", self.size)

    def __dealloc__(self):
        free(self.copy_facts)

    cdef bint has_name(self, int32_t slot) noexcept nogil:
        """Whether lookups find the block in a slot."""
        return self.copy_facts == NULL or not self.copy_facts[slot].nameless

    cdef void forget_copy(self, int32_t slot) noexcept nogil:
        """A slot is filled anew: with a block under its own key, of which there is no copy."""
        if self.copy_facts != NULL:
            self.copy_facts[slot].next = -1
            self.copy_facts[slot].is_copy = self.copy_facts[slot].nameless = 0

    cdef bint note_copy(self, const uint64_t* keys, int32_t i, int32_t slot) noexcept nogil:
        """Block i of the request was given a slot; returns whether it is a copy, which is then the
        youngest of its block."""
        cdef int32_t at
        self.forget_copy(slot)
        if self.originals == NULL or self.originals[i] == keys[i]:
            return False
        self.copy_facts[slot].original = self.originals[i]
        self.copy_facts[slot].is_copy = self.copy_facts[slot].nameless = 1
        at = self.table.find(self.originals[i])
        while at >= 0 and self.copy_facts[at].next >= 0:
            at = self.copy_facts[at].next
        if at >= 0:
            self.copy_facts[at].next = slot
        return True

    cdef int pass_on_names(self, const int32_t* victims, int32_t n) except -1 nogil:
        """Before blocks leave: of each that has copies the oldest takes over its name, and it leaves
        under that one's key."""
        cdef int32_t i
        if self.copy_facts == NULL:
            return 0
        for i in range(n):
            if self.copy_facts[victims[i]].is_copy:
                self.unlink(victims[i])
            elif self.copy_facts[victims[i]].next >= 0:
                self.pass_on(victims[i])
        return 0

    cdef void unlink(self, int32_t slot) noexcept nogil:
        """Take a copy out of the chain of its block; it is in none if the block was removed meanwhile."""
        cdef int32_t at = self.table.find(self.copy_facts[slot].original)
        while at >= 0 and self.copy_facts[at].next != slot:
            at = self.copy_facts[at].next
        if at >= 0:
            self.copy_facts[at].next = self.copy_facts[slot].next

    cdef int pass_on(self, int32_t slot) except -1 nogil:
        cdef int32_t heir = self.copy_facts[slot].next
        cdef uint64_t name = self.keys[slot]
        cdef uint64_t unnamed = self.keys[heir]
        self.table.remove(name)
        self.table.remove(unnamed)
        self.keys[slot] = unnamed
        self.keys[heir] = name
        self.table.insert(name, heir)
        self.table.insert(unnamed, slot)
        self.copy_facts[heir].is_copy = self.copy_facts[heir].nameless = 0
        self.copy_facts[slot].next = -1
        self.copy_facts[slot].nameless = 1
        return 0
