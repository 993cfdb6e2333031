# The slots in use as a dense array, for policies that draw at random from them.
#
# All memory comes from the policy's `allocate`; zeroed memory is the empty set. 8 bytes a slot.

from libc.stdint cimport int32_t

from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.rng cimport Stream, stream_below


cdef struct Members:
    int32_t* slots
    int32_t* places   # slot -> its place in `slots`
    int32_t* count


cdef inline int members_init(Members* members, EvictionPolicy policy, size_t slots) except -1:
    members.slots = <int32_t*>policy.allocate(slots, sizeof(int32_t))
    members.places = <int32_t*>policy.allocate(slots, sizeof(int32_t))
    members.count = <int32_t*>policy.allocate(1, sizeof(int32_t))
    return 0


cdef inline void members_put(Members* members, int32_t place, int32_t slot) noexcept nogil:
    members.slots[place] = slot
    members.places[slot] = place


cdef inline void members_add(Members* members, int32_t slot) noexcept nogil:
    members_put(members, members.count[0], slot)
    members.count[0] += 1


cdef inline void members_remove(Members* members, int32_t slot) noexcept nogil:
    members.count[0] -= 1
    members_put(members, members.places[slot], members.slots[members.count[0]])


cdef inline int32_t members_draw(Members* members, Stream* stream, const int32_t* refs) noexcept nogil:
    # An even draw among the evictable slots, which stays a member; -1 if there is none. Pinned
    # ones that are drawn change places with the last candidate, so that each is drawn only once.
    cdef int32_t candidates = members.count[0]
    cdef int32_t place, slot
    while candidates > 0:
        place = <int32_t>stream_below(stream, candidates)
        slot = members.slots[place]
        if refs[slot] == 1:
            return slot
        candidates -= 1
        members_put(members, place, members.slots[candidates])
        members_put(members, candidates, slot)
    return -1
