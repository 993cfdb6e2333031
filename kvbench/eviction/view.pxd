from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.memory cimport Int32Memory, UInt64Memory

cdef enum:
    STORED_NOW = -4  # in `slots`: STORED_NOW - slot, for a block that this request stored


# The request being served. Codes number the distinct values of a column from 0 in first-seen
# order; -1 stands for null, and for a column that nobody asked for.
cdef struct RequestFacts:
    int64_t index
    int64_t time_ns
    int32_t input_tokens
    int32_t turn
    int32_t priority
    int32_t session
    int32_t tenant
    int32_t type


cdef class TierView:
    cdef Int32Memory refs_memory
    cdef UInt64Memory keys_memory
    cdef const int32_t* refs       # slot -> 0 free, 1 evictable, more: pinned
    cdef const uint64_t* keys      # slot -> key of its block
    cdef RequestFacts request
    cdef int32_t blocks            # cacheable blocks of the request
    # The run of the current call: its first block's position in the request, and the step.
    cdef int32_t depth
    cdef int32_t step
    cdef const int32_t* slots      # position -> slot (encoded), where the whole request is known
    cdef int32_t parent            # parent of a run of one block, where it is not
    cdef const uint64_t* asked     # position -> key of the request being served
    cdef uint64_t incoming         # key that an eviction makes room for (one_by_one policies)
    cdef const int32_t* next_use   # position -> request that uses the block next, or NULL
    cdef int64_t stirs             # counts uses, and pins taken off (one_by_one policies)


cdef inline int32_t parent_slot(TierView view, int32_t k) noexcept nogil:
    # The slot of the block before the k-th of the run, or -1: none, or not resident.
    cdef int32_t position = view.depth + k * view.step
    cdef int32_t slot
    if position == 0:
        return -1
    if view.slots == NULL:
        return view.parent
    slot = view.slots[position - 1]
    if slot <= STORED_NOW:
        return STORED_NOW - slot
    return slot if slot >= 0 else -1
