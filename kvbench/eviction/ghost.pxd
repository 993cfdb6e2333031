# Ghost lists: keys of blocks that are gone, youngest first, with a number beside each. Bounded;
# a full list forgets its oldest key. All memory comes from a policy's `allocate`, so ghosts are
# part of its snapshot.

from libc.stdint cimport int32_t, uint64_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.slotlist cimport Node, list_push_front, list_unlink
from kvbench.hashing cimport mix64, scale64


cdef struct GhostCounts:
    int32_t used
    int32_t fresh      # entries from here on were never used
    int32_t free_head  # chain of emptied entries, through their `next`; 0 ends it


cdef struct Ghost:
    int32_t capacity
    uint64_t places
    Node* nodes        # 0 is the sentinel; entry e is node e
    uint64_t* keys
    int32_t* values
    int32_t* table     # place -> entry, 0: empty
    GhostCounts* counts


cdef int ghost_init(Ghost* ghost, EvictionPolicy policy, int32_t capacity) except -1


cdef inline int32_t ghost_find(const Ghost* ghost, uint64_t key) noexcept nogil:
    # The entry of a key, or 0.
    cdef uint64_t at
    if ghost.capacity == 0:
        return 0
    at = scale64(mix64(key), ghost.places)
    while ghost.table[at] != 0:
        if ghost.keys[ghost.table[at]] == key:
            return ghost.table[at]
        at += 1
        if at == ghost.places:
            at = 0
    return 0


cdef inline void ghost_remove(Ghost* ghost, int32_t entry) noexcept nogil:
    cdef uint64_t hole, at, home
    list_unlink(ghost.nodes, entry)
    hole = scale64(mix64(ghost.keys[entry]), ghost.places)
    while ghost.table[hole] != entry:
        hole += 1
        if hole == ghost.places:
            hole = 0
    # Shift back what follows, as in the block table.
    at = hole
    while True:
        at += 1
        if at == ghost.places:
            at = 0
        if ghost.table[at] == 0:
            break
        home = scale64(mix64(ghost.keys[ghost.table[at]]), ghost.places)
        if (at - home if at >= home else at + ghost.places - home) >= (
            at - hole if at >= hole else at + ghost.places - hole
        ):
            ghost.table[hole] = ghost.table[at]
            hole = at
    ghost.table[hole] = 0
    ghost.nodes[entry].next = ghost.counts.free_head
    ghost.counts.free_head = entry
    ghost.counts.used -= 1


cdef inline int32_t ghost_oldest(const Ghost* ghost) noexcept nogil:
    # The entry at the back, or 0.
    return ghost.nodes[0].prev


cdef inline int32_t ghost_push(Ghost* ghost, uint64_t key, int32_t value) noexcept nogil:
    # Add an absent key at the front and return its entry; a full list loses its oldest first.
    cdef int32_t entry
    cdef uint64_t at
    if ghost.capacity == 0:
        return 0
    if ghost.counts.used == ghost.capacity:
        ghost_remove(ghost, ghost_oldest(ghost))
    entry = ghost.counts.free_head
    if entry != 0:
        ghost.counts.free_head = ghost.nodes[entry].next
    else:
        ghost.counts.fresh += 1
        entry = ghost.counts.fresh
    ghost.keys[entry] = key
    ghost.values[entry] = value
    list_push_front(ghost.nodes, entry)
    at = scale64(mix64(key), ghost.places)
    while ghost.table[at] != 0:
        at += 1
        if at == ghost.places:
            at = 0
    ghost.table[at] = entry
    ghost.counts.used += 1
    return entry
