from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.serving.fixed cimport u128
from kvbench.serving.heap cimport Heap

cdef enum:
    MOST_LINKS = 8   # of a path


# The handles of transfers that wait for a link, in order of arrival: a ring.
cdef struct Queue:
    int64_t* handles
    int64_t room, first, count


# What happens at a link.
cdef struct LinkState:
    uint64_t bandwidth
    int64_t latency_ns, concurrency
    int32_t limit                           # transfers in flight at most; 0: any number
    int32_t in_flight, most_in_flight       # of these some still wait for the latency
    int32_t flowing                         # and the others share the bandwidth
    int32_t waiting
    bint open                               # a transfer that waits may be able to begin
    int64_t ended_bytes, operations, latency_sum_ns
    int64_t ahead_bytes, ahead_latency_ns   # sizes of those waiting or in flight, latencies of those waiting
    u128 delayed_until                      # when the latency of the one that began last is over
    u128 busy, busy_since
    Queue queue
    int32_t* legs                           # that pass it
    int32_t leg_count


# Links that a transfer passes at once. All that flow through one leg flow equally fast, so one
# number, the progress that each of them makes, says where they are.
cdef struct Leg:
    int32_t links[MOST_LINKS]
    int32_t link_count
    uint64_t bandwidth                      # each flows at bandwidth / sharers: of the link that gives least
    uint64_t sharers
    u128 progress, settled                  # an amount, and the moment at which it had been made
    u128 begun_sum                          # sum over those flowing of the progress at which they began
    Heap flowing                            # by the progress at which they have moved all their bytes


cdef struct Path:
    int32_t legs[MOST_LINKS]                # one after the other
    int32_t leg_count


cdef struct Transfer:
    int64_t handle, owner, size_bytes, operations
    int32_t path, hop, state, next_free
    u128 begun                              # progress of the leg when it began to flow
    u128 least                              # it does not end before


cdef class Flows:
    cdef readonly list links
    cdef dict leg_numbers
    cdef LinkState* at
    cdef Leg* legs
    cdef Path* paths
    cdef Transfer* transfers
    cdef int32_t* places                    # of transfers, each in one heap at most
    cdef int32_t* leg_places
    cdef int32_t link_count, leg_count, path_count
    cdef int32_t room, used, free_slot
    cdef Heap ends                          # legs, by the moment at which their first transfer ends

    cdef int32_t add_leg(self, tuple links) except -1
    cdef int32_t take_slot(self) except -1 nogil
    cdef void drop_slot(self, int32_t slot) noexcept nogil
    cdef Leg* leg_of(self, const Transfer* transfer) noexcept nogil
    cdef int join(self, int32_t slot, u128 at) except -1 nogil
    cdef int cease(self, int32_t slot, int64_t moved_bytes, u128 at) except -1 nogil
    cdef int share(self, int32_t number, int32_t change, u128 at) except -1 nogil
    cdef bint choose_rate(self, Leg* leg, u128 at) noexcept nogil
    cdef int set_end(self, int32_t number) except -1 nogil
    cdef int64_t flowed(self, const Transfer* transfer, u128 at) noexcept nogil
    cdef void observe_at(self, u128 at) noexcept with gil
    cdef u128 moving(self, const LinkState* link, u128 at) noexcept nogil


cdef void* larger(void* array, int64_t count, size_t size) except NULL nogil
