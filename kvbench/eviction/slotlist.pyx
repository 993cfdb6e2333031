"""The base of policies that keep their slots in one list and evict from its back."""

from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy


cdef class ListPolicy(EvictionPolicy):
    """Inserts at the front, evicts from the back, skips pinned blocks. 8 bytes a slot."""

    def __cinit__(self, context, *args, **kwargs):
        self.nodes = <Node*>self.allocate(<size_t>self.capacity + 1, sizeof(Node))

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        list_push_many(self.nodes, slots, n)
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            list_unlink(self.nodes, slots[i] + 1)
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        return list_evict_back(self.nodes, self.view.refs, n, victims)
