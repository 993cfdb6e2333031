# A binary heap of numbered items whose keys may change. Where each item is stands in an array of
# places that the caller owns; an item is in one heap at a time of those that share such an array.

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport realloc

from kvbench.memory cimport no_memory
from kvbench.serving.fixed cimport before, u128


cdef struct Entry:
    u128 key
    int64_t order        # of equal keys, the lower comes first
    int32_t item


cdef struct Heap:
    Entry* entries
    int32_t count, room


cdef inline bint comes_before(const Entry* a, const Entry* b) noexcept nogil:
    return a.order < b.order if a.key == b.key else before(a.key, b.key)


cdef inline void put_up(Heap* heap, int32_t* places, int32_t at, Entry entry) noexcept nogil:
    # Put the entry at this place or above, where the entries that have to come after it move down.
    cdef int32_t parent
    while at > 0:
        parent = (at - 1) >> 1
        if not comes_before(&entry, &heap.entries[parent]):
            break
        heap.entries[at] = heap.entries[parent]
        places[heap.entries[at].item] = at
        at = parent
    heap.entries[at] = entry
    places[entry.item] = at


cdef inline void put_down(Heap* heap, int32_t* places, int32_t at, Entry entry) noexcept nogil:
    cdef int32_t child = 2 * at + 1
    while child < heap.count:
        if child + 1 < heap.count and comes_before(&heap.entries[child + 1], &heap.entries[child]):
            child += 1
        if not comes_before(&heap.entries[child], &entry):
            break
        heap.entries[at] = heap.entries[child]
        places[heap.entries[at].item] = at
        at = child
        child = 2 * at + 1
    heap.entries[at] = entry
    places[entry.item] = at


cdef inline void put_at(Heap* heap, int32_t* places, int32_t at, Entry entry) noexcept nogil:
    if at > 0 and comes_before(&entry, &heap.entries[(at - 1) >> 1]):
        put_up(heap, places, at, entry)
    else:
        put_down(heap, places, at, entry)


cdef inline int heap_push(Heap* heap, int32_t* places, u128 key, int64_t order, int32_t item) except -1 nogil:
    cdef Entry* entries
    cdef Entry entry
    if heap.count == heap.room:
        entries = <Entry*>realloc(heap.entries, (2 * heap.room + 16) * sizeof(Entry))
        if entries == NULL:
            no_memory("transfers", 2 * heap.room + 16)
        heap.entries = entries
        heap.room = 2 * heap.room + 16
    entry.key = key
    entry.order = order
    entry.item = item
    heap.count += 1
    put_up(heap, places, heap.count - 1, entry)
    return 0


cdef inline void heap_remove(Heap* heap, int32_t* places, int32_t item) noexcept nogil:
    cdef int32_t at = places[item]
    heap.count -= 1
    if at < heap.count:
        put_at(heap, places, at, heap.entries[heap.count])
    places[item] = -1


cdef inline void heap_change(Heap* heap, int32_t* places, int32_t item, u128 key) noexcept nogil:
    cdef Entry entry = heap.entries[places[item]]
    entry.key = key
    put_at(heap, places, places[item], entry)
