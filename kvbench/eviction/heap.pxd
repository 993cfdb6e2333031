# A heap of slots, lowest (key, tie) first, for policies that evict the least of something.
#
# In the policy's class:                cdef Heap heap
# In __cinit__:                         heap_init(&self.heap, self, self.capacity)
#                                       (capacity + 1 for a policy that inserts first)
# When a slot is stored:                heap_push(&self.heap, slot, key, tie)
# When its key changes, up or down:     heap_update(&self.heap, slot, key, tie)
# In remove_slots:                      heap_remove(&self.heap, slot)   (absent: nothing happens)
# In evict_slots:                       return heap_evict(&self.heap, self.view.refs, n, victims)
# To look before that:                  heap_min, heap_key, heap_tie, heap_contains, heap_size
#
# Where keys only ever rise, `heap_evict_lazy` saves the updates: write the slot's new key to an
# array of HeapRank (which has the pushed one too) and leave the heap alone. What is in the heap
# is then a lower bound, and a root that is out of date sinks when it is met. The victims are the
# same, and a block that is used a hundred times before it nears the root moves once.
#
# Keys are 64-bit integers; `double_key` turns a double into one that sorts alike. Slots with equal
# keys go by tie, lowest first: give a number that grows with each call (a sequence number) to
# prefer the older one. Two entries should not be equal in both.
#
# All memory comes from the policy's `allocate`, zeroed memory is an empty heap, and nothing points
# into it: the heap is part of the policy's snapshot as it is. 28 bytes a slot; O(log n) a change.
# Four children to a node, keys beside the slots: a step down reads two neighbouring cache lines.

from libc.stdint cimport int32_t, int64_t

from kvbench.eviction.policy cimport EvictionPolicy


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Doubles order like sign-and-magnitude integers: turn the negative ones round. */
    static inline int64_t kvbench_double_key(double value)
    {
        int64_t bits;
        value += 0.0; /* -0.0 is 0.0 */
        memcpy(&bits, &value, sizeof bits);
        return bits >= 0 ? bits : bits ^ INT64_MAX;
    }
    """
    int64_t double_key "kvbench_double_key"(double value) noexcept nogil


cdef struct HeapEntry:
    int64_t key
    int64_t tie
    int32_t slot


cdef struct HeapRank:
    int64_t key
    int64_t tie


cdef struct Heap:
    HeapEntry* entries   # 1 is the root; entries[0].slot counts the entries
    int32_t* positions   # slot -> its entry, 0: not in the heap


cdef inline int heap_init(Heap* heap, EvictionPolicy policy, size_t slots) except -1:
    # Prepare an empty heap for slots 0 … slots-1.
    heap.entries = <HeapEntry*>policy.allocate(slots + 1, sizeof(HeapEntry))
    heap.positions = <int32_t*>policy.allocate(slots, sizeof(int32_t))
    return 0


cdef inline int32_t heap_size(const Heap* heap) noexcept nogil:
    return heap.entries[0].slot


cdef inline bint heap_contains(const Heap* heap, int32_t slot) noexcept nogil:
    return heap.positions[slot] != 0


cdef inline int32_t heap_min(const Heap* heap) noexcept nogil:
    # The slot at the root, or -1 if the heap is empty.
    return heap.entries[1].slot if heap.entries[0].slot > 0 else -1


cdef inline int64_t heap_key(const Heap* heap, int32_t slot) noexcept nogil:
    # The key of a slot that is in the heap.
    return heap.entries[heap.positions[slot]].key


cdef inline int64_t heap_tie(const Heap* heap, int32_t slot) noexcept nogil:
    return heap.entries[heap.positions[slot]].tie


cdef inline bint heap_before(const HeapEntry* a, const HeapEntry* b) noexcept nogil:
    return a.key < b.key or (a.key == b.key and a.tie < b.tie)


cdef inline void heap_sift_up(Heap* heap, int32_t at, HeapEntry entry) noexcept nogil:
    # Put `entry` at the hole `at` or above it.
    cdef HeapEntry* entries = heap.entries
    cdef int32_t parent
    while at > 1:
        parent = (at + 2) >> 2
        if not heap_before(&entry, &entries[parent]):
            break
        entries[at] = entries[parent]
        heap.positions[entries[at].slot] = at
        at = parent
    entries[at] = entry
    heap.positions[entry.slot] = at


cdef inline void heap_sift_down(Heap* heap, int32_t at, HeapEntry entry) noexcept nogil:
    # Put `entry` at the hole `at` or below it.
    cdef HeapEntry* entries = heap.entries
    cdef int64_t size = entries[0].slot
    cdef int64_t child, last, least
    while True:
        child = 4 * <int64_t>at - 2
        if child > size:
            break
        last = child + 3 if child + 3 < size else size
        least = child
        while child < last:
            child += 1
            if heap_before(&entries[child], &entries[least]):
                least = child
        if not heap_before(&entries[least], &entry):
            break
        entries[at] = entries[least]
        heap.positions[entries[at].slot] = at
        at = <int32_t>least
    entries[at] = entry
    heap.positions[entry.slot] = at


cdef inline void heap_settle(Heap* heap, int32_t at, HeapEntry entry) noexcept nogil:
    if at > 1 and heap_before(&entry, &heap.entries[(at + 2) >> 2]):
        heap_sift_up(heap, at, entry)
    else:
        heap_sift_down(heap, at, entry)


cdef inline void heap_push(Heap* heap, int32_t slot, int64_t key, int64_t tie) noexcept nogil:
    # Add a slot that is not in the heap.
    cdef HeapEntry entry
    entry.key = key
    entry.tie = tie
    entry.slot = slot
    heap.entries[0].slot += 1
    heap_sift_up(heap, heap.entries[0].slot, entry)


cdef inline void heap_update(Heap* heap, int32_t slot, int64_t key, int64_t tie) noexcept nogil:
    # Give a slot that is in the heap another key.
    cdef HeapEntry entry
    entry.key = key
    entry.tie = tie
    entry.slot = slot
    heap_settle(heap, heap.positions[slot], entry)


cdef inline void heap_remove(Heap* heap, int32_t slot) noexcept nogil:
    cdef int32_t at = heap.positions[slot]
    cdef int32_t last = heap.entries[0].slot
    if at == 0:
        return
    heap.positions[slot] = 0
    heap.entries[0].slot = last - 1
    if at != last:
        heap_settle(heap, at, heap.entries[last])


cdef inline int32_t heap_pop(Heap* heap) noexcept nogil:
    # Take the root out; -1 if the heap is empty.
    cdef int32_t slot = heap_min(heap)
    if slot >= 0:
        heap_remove(heap, slot)
    return slot


cdef inline int32_t heap_evict_lazy(
    Heap* heap, const HeapRank* ranks, const int32_t* refs, int32_t n, int32_t* victims
) noexcept nogil:
    # Take out up to n evictable slots, lowest first; pinned ones that are met on the way stay.
    # They wait behind the end of the heap, in places that taking them out has vacated.
    # Without `ranks` the keys in the heap are the true ones.
    cdef HeapEntry root
    cdef int32_t end = heap.entries[0].slot
    cdef int32_t held = 0, found = 0
    while found < n and heap.entries[0].slot > 0:
        root = heap.entries[1]
        if ranks != NULL and (ranks[root.slot].key != root.key or ranks[root.slot].tie != root.tie):
            root.key = ranks[root.slot].key
            root.tie = ranks[root.slot].tie
            heap_sift_down(heap, 1, root)
            continue
        heap_remove(heap, root.slot)
        if refs[root.slot] == 1:
            victims[found] = root.slot
            found += 1
        else:
            heap.entries[end - held] = root
            held += 1
    while held > 0:
        held -= 1
        root = heap.entries[end - held]
        heap_push(heap, root.slot, root.key, root.tie)
    return found


cdef inline int32_t heap_evict(Heap* heap, const int32_t* refs, int32_t n, int32_t* victims) noexcept nogil:
    return heap_evict_lazy(heap, NULL, refs, n, victims)
