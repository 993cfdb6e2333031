# A request in timed replay, and the two lists it may stand in. Plain structs, so that queues of any length
# cost no Python objects.

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

# Columns of a row of times, in the order of kvbench.replays.timecolumns.TIMES.
cdef enum:
    ARRIVAL = 0
    ROUTED_AT
    ADMITTED
    FETCH_START
    FETCH_END
    PREFILL_START
    FIRST_TOKEN
    END
    QUEUE_NS
    FETCH_NS
    PREFILL_NS
    COMPUTED_TOKENS
    GENERATED_TOKENS
    PREEMPTIONS
    DECLINED_BLOCKS
    READMITTED_BLOCKS
    NEED_BLOCKS
    STATUS
    TIME_COLUMNS

cdef enum Status:
    STATUS_DONE = 0
    STATUS_REJECTED = 1
    STATUS_UNFINISHED = 2

cdef enum State:
    WAITING = 0
    FETCH = 1
    READY = 2
    PREFILL = 3
    DECODE = 4
    WRITING = 5   # done but for its writes, which hold its blocks


# A block of the GPU that a request uses: the store it is in, its slot, the chunk of the request that it is,
# and whether that chunk is under way: computed by the request itself, or fetched for it.
cdef struct Pin:
    PyObject* tier
    int32_t slot
    int32_t chunk
    int32_t cause    # a FillCause while it is under way for this request, else LANDED

cdef enum:
    LANDED = -1


cdef struct Request:
    Request* next
    Request* before
    Request* later         # among those that hold blocks, in the order of their admission
    Request* earlier
    const uint64_t* keys
    int64_t* times         # its row of times
    int32_t* row           # its row of counts
    int32_t* tier_row
    int64_t number         # in the order of arrival
    int64_t index          # its row of its batch
    int64_t batch
    int64_t prompt         # tokens
    int64_t answer         # tokens to generate, at least 1
    int64_t generated      # of them, when it was last preempted; those since are counted by steps
    int64_t computed       # tokens whose KV is there
    int64_t target         # tokens whose KV is to be there before the next one comes out
    int64_t chunk_now      # tokens that the step under way computes
    int64_t since_ns       # when its present state began
    int64_t first_step     # decode step of its worker from which on it takes part
    int64_t handle         # of the load ledger
    int64_t wait_ns        # closed loop: what the next turn waits after this one has ended
    int32_t blocks         # that it asks for
    int32_t stored         # blocks of its keys that are to be stored: answer's included
    int32_t limit          # of these asked ones, how many may hit
    int32_t worker
    int32_t session
    int32_t moves          # transfers that it waits for
    int32_t writes         # first of its writes that have not ended, or -1
    int64_t held_chunks    # of the GPU; what its pins do not make up are for no block of the cache
    int32_t place          # position in the worker's heap of decoding requests, or -1
    int64_t due_step       # decode step at which something happens to it
    Pin* pins
    int32_t pin_count
    int32_t pin_room
    Pin* sources           # blocks of lower tiers that it reads
    int32_t source_count
    int32_t source_room
    uint8_t state
    uint8_t fresh          # its hits have not been counted yet
    uint8_t told           # the routers know that its prefill has ended
    uint8_t hindrance      # the Admission of the last try


cdef struct Queue:
    Request* first
    Request* last
    int64_t count


cdef inline void join(Queue* queue, Request* request) noexcept nogil:
    request.next = NULL
    request.before = queue.last
    if queue.last != NULL:
        queue.last.next = request
    else:
        queue.first = request
    queue.last = request
    queue.count += 1


cdef inline void join_first(Queue* queue, Request* request) noexcept nogil:
    request.before = NULL
    request.next = queue.first
    if queue.first != NULL:
        queue.first.before = request
    else:
        queue.last = request
    queue.first = request
    queue.count += 1


cdef inline void leave(Queue* queue, Request* request) noexcept nogil:
    if request.before != NULL:
        request.before.next = request.next
    else:
        queue.first = request.next
    if request.next != NULL:
        request.next.before = request.before
    else:
        queue.last = request.before
    request.next = request.before = NULL
    queue.count -= 1


# The same for the list of those that hold blocks.
cdef inline void hold(Queue* queue, Request* request) noexcept nogil:
    request.later = NULL
    request.earlier = queue.last
    if queue.last != NULL:
        queue.last.later = request
    else:
        queue.first = request
    queue.last = request
    queue.count += 1


cdef inline void let_go(Queue* queue, Request* request) noexcept nogil:
    if request.earlier != NULL:
        request.earlier.later = request.later
    else:
        queue.first = request.later
    if request.later != NULL:
        request.later.earlier = request.earlier
    else:
        queue.last = request.earlier
    request.later = request.earlier = NULL
    queue.count -= 1
