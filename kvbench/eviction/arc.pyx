"""ARC: two LRU lists, of blocks used once and used again; ghosts of both shift the balance.

``T1`` has the blocks used once, ``T2`` those used again, ``B1`` and ``B2`` the keys that left
them. A key that returns from B1 says that T1 was too small and raises its target ``p``, one from
B2 lowers it. Within p the block to go is the back of T2, else that of T1.

Source: Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, as
libCacheSim 0.3.5 counts it (p is real; lists are trimmed only to make room). Cost: O(1) a
touched, inserted or evicted block; 65 bytes a slot, nearly all of it ghosts.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kvbench.eviction.onevictim cimport OneVictimPolicy
from kvbench.eviction.queues cimport queue_evictable, queue_move, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink
from kvbench.hashing cimport mix64, scale64

cdef enum:
    ONCE = 0
    AGAIN = 1
    NEW = -1


cdef struct Ghost:
    uint64_t key
    int32_t younger      # in its list; entries ONCE and AGAIN are the two sentinels
    int32_t older        # or the next emptied entry
    int32_t chained      # the next entry of the same place; 0, a sentinel, ends the chain
    int32_t origin       # ONCE or AGAIN: the list that the key left


cdef struct State:
    double target        # of the blocks used once: p
    int64_t sizes[2]
    int64_t ghosts[2]    # keys in B1 and in B2
    uint64_t judged_key  # the key whose origin is known already, because room was made for it
    int32_t judged
    int32_t origin       # NEW, or the list that its key left
    int32_t fresh        # entries from here on were never used
    int32_t emptied      # chain of emptied entries; 0 ends it


@cython.final
cdef class Arc(OneVictimPolicy):
    """T1 and T2 are queues ONCE and AGAIN; ``where`` says which one a slot is in.

    B1 and B2 are two lists over one hash table, so that a key is looked up once. Its places chain
    their entries: most chains are empty or have one, and forgetting a key moves no other.
    """

    cdef Node* nodes
    cdef uint8_t* where
    cdef State* state
    cdef Ghost* ghosts
    cdef int32_t* chains  # place -> entry
    cdef uint64_t places

    def __cinit__(self, context):
        self.one_by_one = True
        self.nodes = queues_make(self, self.capacity, 2)
        self.where = <uint8_t*>self.allocate(self.capacity, sizeof(uint8_t))
        self.state = <State*>self.allocate(1, sizeof(State))
        self.places = 2 * <uint64_t>self.capacity
        self.chains = <int32_t*>self.allocate(self.places, sizeof(int32_t))
        self.ghosts = <Ghost*>self.allocate(self.places + 2, sizeof(Ghost))
        self.ghosts[AGAIN].younger = self.ghosts[AGAIN].older = AGAIN
        self.state.fresh = 2

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if self.where[slots[i]] == ONCE:
                self.where[slots[i]] = AGAIN
                self.state.sizes[ONCE] -= 1
                self.state.sizes[AGAIN] += 1
            queue_move(self.nodes, self.capacity + AGAIN, slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, into
        for i in range(n):
            into = ONCE if self.judge(self.view.keys[slots[i]]) == NEW else AGAIN
            self.state.judged = False
            self.where[slots[i]] = into
            self.state.sizes[into] += 1
            queue_push(self.nodes, self.capacity + into, slots[i])
        return 0

    cdef void forget(self, int32_t slot) noexcept nogil:
        list_unlink(self.nodes, slot)
        self.state.sizes[self.where[slot]] -= 1

    cdef int32_t judge(self, uint64_t key) noexcept nogil:
        """Where a missing key was seen last; a ghost that returns moves the target."""
        cdef State* state = self.state
        cdef double once, again
        cdef int32_t entry
        if state.judged and state.judged_key == key:
            return state.origin
        state.judged = True
        state.judged_key = key
        entry = self.ghost_of(key)
        if entry == 0:
            state.origin = NEW
            return NEW
        state.origin = self.ghosts[entry].origin
        once, again = state.ghosts[ONCE], state.ghosts[AGAIN]
        if state.origin == ONCE:
            state.target = min(state.target + max(1.0, again / once), <double>self.capacity)
        else:
            state.target = max(state.target - max(1.0, once / again), 0.0)
        self.forget_ghost(entry)
        return state.origin

    cdef int32_t evict_one(self) noexcept nogil:
        cdef State* state = self.state
        cdef int64_t in_once
        cdef int32_t victim
        if self.judge(self.view.incoming) == NEW:
            in_once = state.sizes[ONCE] + state.ghosts[ONCE]
            if in_once >= self.capacity:
                if state.ghosts[ONCE] == 0:
                    victim = queue_evictable(self.nodes, self.capacity + ONCE, self.view.refs)
                    if victim >= 0:
                        self.forget(victim)
                        return victim
                else:
                    self.forget_ghost(self.ghosts[ONCE].younger)
            elif (
                state.ghosts[AGAIN] > 0
                and in_once + state.sizes[AGAIN] + state.ghosts[AGAIN] >= 2 * <int64_t>self.capacity
            ):
                self.forget_ghost(self.ghosts[AGAIN].younger)
        return self.replace()

    cdef int32_t replace(self) noexcept nogil:
        """The back of the list above its target, remembered in its ghost list."""
        cdef int64_t once = self.state.sizes[ONCE]
        cdef double target = self.state.target
        cdef int32_t source = AGAIN
        cdef int32_t victim
        if once > 0 and (once > target or (once == target and self.state.origin == AGAIN)):
            source = ONCE
        victim = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
        if victim < 0:
            source = 1 - source
            victim = queue_evictable(self.nodes, self.capacity + source, self.view.refs)
        if victim >= 0:
            self.forget(victim)
            self.remember(self.view.keys[victim], source)
        return victim

    cdef uint64_t place_of(self, uint64_t key) noexcept nogil:
        return scale64(mix64(key), self.places)

    cdef int32_t ghost_of(self, uint64_t key) noexcept nogil:
        """The entry of a key, or 0."""
        cdef int32_t entry = self.chains[self.place_of(key)]
        while entry != 0 and self.ghosts[entry].key != key:
            entry = self.ghosts[entry].chained
        return entry

    cdef void remember(self, uint64_t key, int32_t origin) noexcept nogil:
        """Add an absent key as the youngest of its list; a full list loses its oldest first."""
        cdef Ghost* ghosts = self.ghosts
        cdef int32_t* chain = &self.chains[self.place_of(key)]
        cdef int32_t entry, front
        if self.state.ghosts[origin] == self.capacity:
            self.forget_ghost(ghosts[origin].younger)
        entry = self.state.emptied
        if entry != 0:
            self.state.emptied = ghosts[entry].older
        else:
            entry = self.state.fresh
            self.state.fresh += 1
        front = ghosts[origin].older
        ghosts[entry] = Ghost(key=key, younger=origin, older=front, chained=chain[0], origin=origin)
        ghosts[front].younger = entry
        ghosts[origin].older = entry
        chain[0] = entry
        self.state.ghosts[origin] += 1

    cdef void forget_ghost(self, int32_t entry) noexcept nogil:
        cdef Ghost* ghost = &self.ghosts[entry]
        cdef int32_t* link = &self.chains[self.place_of(ghost.key)]
        while link[0] != entry:
            link = &self.ghosts[link[0]].chained
        link[0] = ghost.chained
        self.ghosts[ghost.younger].older = ghost.older
        self.ghosts[ghost.older].younger = ghost.younger
        self.state.ghosts[ghost.origin] -= 1
        ghost.older = self.state.emptied
        self.state.emptied = entry
