# A doubly linked list threaded through slots, shared by the policies that keep an order.
#
# Node i+1 belongs to slot i and node 0 is the sentinel: its `next` is the front (most recent)
# and its `prev` the back. Zeroed memory is an empty list, so a list over a capacity that is
# never reached costs no memory, and no operation has a branch for the ends.

from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy


cdef struct Node:
    int32_t prev
    int32_t next


cdef inline void list_unlink(Node* nodes, int32_t node) noexcept nogil:
    cdef int32_t before = nodes[node].prev
    cdef int32_t after = nodes[node].next
    nodes[before].next = after
    nodes[after].prev = before


cdef inline void list_splice_front(Node* nodes, int32_t first, int32_t last) noexcept nogil:
    # Put the linked run first … last (front to back) at the front.
    cdef int32_t front = nodes[0].next
    nodes[first].prev = 0
    nodes[last].next = front
    nodes[front].prev = last
    nodes[0].next = first


cdef inline void list_push_front(Node* nodes, int32_t node) noexcept nogil:
    list_splice_front(nodes, node, node)


cdef inline void list_push_many(Node* nodes, const int32_t* slots, int32_t n) noexcept nogil:
    # Push slots[0] … slots[n-1] in this order. They are linked among themselves first, so that
    # the sentinel is written once a request.
    cdef int32_t i
    if n == 0:
        return
    for i in range(n - 1):
        nodes[slots[i] + 1].prev = slots[i + 1] + 1
        nodes[slots[i + 1] + 1].next = slots[i] + 1
    list_splice_front(nodes, slots[n - 1] + 1, slots[0] + 1)


cdef inline int32_t list_evict_back(Node* nodes, const int32_t* refs, int32_t n, int32_t* victims) noexcept nogil:
    # Unlink up to n evictable slots from the back, skipping pinned ones.
    cdef int32_t node = nodes[0].prev
    cdef int32_t before, found = 0
    while found < n and node != 0:
        before = nodes[node].prev
        if refs[node - 1] == 1:
            victims[found] = node - 1
            found += 1
            list_unlink(nodes, node)
        node = before
    return found


cdef class ListPolicy(EvictionPolicy):
    cdef Node* nodes
