from libc.stdint cimport int32_t, int64_t

from kvbench.serving.fixed cimport u128
from kvbench.serving.flows cimport Flows, LinkState, Transfer
from kvbench.serving.heap cimport Heap

cdef enum:
    SLOT_BITS = 24   # of a handle; the rest numbers the starts
    SLOT_MASK = (1 << SLOT_BITS) - 1
    NO_HANDLE = -1

cdef enum:           # states of a transfer
    WAITING          # for its turn
    DELAYED          # by the latency
    FLOWING
    ENDED            # and not yet popped


cdef class Turns(Flows):
    cdef u128 reached                       # the moment of the last change
    cdef int32_t* open_links                # a stack
    cdef int32_t open_count
    cdef Heap delayed                       # in their latency, by its end

    cdef void reach(self, u128 at) noexcept nogil
    cdef Transfer* find(self, int64_t handle) noexcept nogil
    cdef int enter(self, int32_t slot) except -1 nogil
    cdef int admit(self) except -1 nogil
    cdef void look_again(self, int32_t number) noexcept nogil
    cdef int64_t first_waiting(self, LinkState* link) noexcept nogil
    cdef bint has_turn(self, int64_t handle) noexcept nogil
    cdef int take_turn(self, int32_t slot) except -1 nogil
    cdef void release(self, const Transfer* transfer) noexcept nogil
    cdef u128 turn(self, const LinkState* link, u128 at) noexcept nogil


cdef int64_t waves_ns(const LinkState* link, int64_t operations) noexcept nogil
