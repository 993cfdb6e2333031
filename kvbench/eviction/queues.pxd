# Several queues over the same slots, for policies that move blocks from one to another.
#
# Node s belongs to slot s; queue q has its sentinel at node `slots + q`, whose `next` is the
# front (youngest) and whose `prev` the back. A slot is in one queue at a time.
#
# A sweep from the tail pins thousands of blocks before it asks for as many victims, one by one.
# A search with a mark passes each of them once: it goes on behind those that the last one found
# pinned. That holds until the view is stirred, provided that only uses take pinned blocks out of
# their places; a policy that moves them otherwise voids the mark. Marks are no state: they lie
# outside of what a policy allocates, and a snapshot does not have them.

from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.eviction.view cimport TierView


cdef struct Mark:
    int32_t node   # from here to the back nothing may go
    int64_t stirs  # of the view, when that was so; 0: void


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


cdef inline int32_t mark_resume(Mark* mark, int32_t head, TierView view) noexcept nogil:
    # The node in front of which a search goes on.
    if mark.stirs != view.stirs:
        mark.stirs = view.stirs
        mark.node = head
    return mark.node


cdef inline int32_t queue_search(const Node* nodes, int32_t head, TierView view, Mark* mark) noexcept nogil:
    # The same as queue_evictable, with a mark.
    cdef int32_t node = nodes[mark_resume(mark, head, view)].prev
    while node != head:
        if view.refs[node] == 1:
            return node
        mark.node = node
        node = nodes[node].prev
    return -1
