# Several queues over the same slots, for policies that move blocks from one to another.
#
# Node s belongs to slot s; queue q has its sentinel at node `slots + q`, whose `next` is the
# front (youngest) and whose `prev` the back. A slot is in one queue at a time.

from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node, list_unlink


cdef Node* queues_make(EvictionPolicy policy, int32_t slots, int32_t queues) except NULL
cdef int32_t share_of(int32_t capacity, double ratio) except -1
cdef int32_t ghosts_of(EvictionPolicy policy, double ratio) except -1


cdef inline void queue_push(Node* nodes, int32_t head, int32_t node) noexcept nogil:
    cdef int32_t front = nodes[head].next
    nodes[node].prev = head
    nodes[node].next = front
    nodes[front].prev = node
    nodes[head].next = node


cdef inline void queue_move(Node* nodes, int32_t head, int32_t node) noexcept nogil:
    # From wherever it is to the front of a queue.
    if nodes[node].prev != head:
        list_unlink(nodes, node)
        queue_push(nodes, head, node)


cdef inline int32_t queue_evictable(const Node* nodes, int32_t head, const int32_t* refs) noexcept nogil:
    # The oldest slot of a queue that is not pinned, or -1.
    cdef int32_t node = nodes[head].prev
    while node != head:
        if refs[node] == 1:
            return node
        node = nodes[node].prev
    return -1
