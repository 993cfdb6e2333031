# A segmented LRU over some of a policy's slots: a used block rises one segment, and what a
# segment has too many of sinks back. Shared by SLRU and W-TinyLFU.

from libc.stdint cimport int32_t, uint8_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport Mark, queue_move, queue_push, queue_search
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.eviction.view cimport TierView

cdef enum:
    MOST_SEGMENTS = 255


cdef struct Segment:
    int32_t size
    int32_t share


cdef struct Segments:
    Node* nodes       # queues_make; segment i is the queue with head `first + i`
    uint8_t* where    # slot -> segment
    Segment* segments
    int32_t first
    int32_t count
    Mark[MOST_SEGMENTS] marks


cdef int segments_init(
    Segments* parts, EvictionPolicy policy, Node* nodes, uint8_t* where, int32_t first, int32_t count
) except -1


cdef inline void segments_put(Segments* parts, int32_t slot, int32_t segment) noexcept nogil:
    parts.where[slot] = segment
    parts.segments[segment].size += 1
    queue_push(parts.nodes, parts.first + segment, slot)


cdef inline void segments_forget(Segments* parts, int32_t slot) noexcept nogil:
    parts.segments[parts.where[slot]].size -= 1
    list_unlink(parts.nodes, slot)


cdef inline bint segment_overflows(const Segments* parts, int32_t segment) noexcept nogil:
    return parts.segments[segment].size > parts.segments[segment].share


cdef inline void segments_insert(Segments* parts, int32_t slot) noexcept nogil:
    # Into the lowest segment with room, so that a filling cache fills the upper ones too.
    cdef int32_t i
    for i in range(parts.count):
        if parts.segments[i].size < parts.segments[i].share:
            segments_put(parts, slot, i)
            return
    segments_put(parts, slot, 0)


cdef inline bint segments_touch(Segments* parts, int32_t slot) noexcept nogil:
    # Raise a used block; returns whether what sank made the lowest segment too large.
    cdef int32_t i = parts.where[slot]
    cdef int32_t sinking
    if i == parts.count - 1:
        queue_move(parts.nodes, parts.first + i, slot)
        return False
    segments_forget(parts, slot)
    i += 1
    segments_put(parts, slot, i)
    while i > 0 and segment_overflows(parts, i):
        sinking = parts.nodes[parts.first + i].prev
        segments_forget(parts, sinking)
        i -= 1
        segments_put(parts, sinking, i)
    return i == 0 and segment_overflows(parts, 0)


cdef inline int32_t segments_evictable(Segments* parts, TierView view) noexcept nogil:
    # The back of the lowest segment that has a block to give, or -1.
    cdef int32_t i, slot
    for i in range(parts.count):
        slot = queue_search(parts.nodes, parts.first + i, view, &parts.marks[i])
        if slot >= 0:
            return slot
    return -1
