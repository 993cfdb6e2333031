"""The steps of a worker: who takes part in the next one, and who of those that decode is due (semantics §9.3).

A step takes all decoding requests, one token each, and chunks of prompts up to a token budget: running prompts
first, then those that have been fetched, then those that wait, in order of arrival. A waiting request is passed
over only while it may not fetch, or another one computes what it needs; the first that finds no room ends the scan.
One that lacked a fetch, or a seat, is looked up again when there is one: that something else would do by now is not
found out before.

Requests that decode cost nothing between the steps at which something happens to them: how many tokens
each has is counted by steps, and a heap knows who needs a block or ends next.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kvbench.memory cimport no_memory
from kvbench.serving.compute cimport Chunk, ComputeModel, Step
from kvbench.serving.holdings cimport Observer
from kvbench.serving.mover cimport FETCHES, NO_FETCH_NOW, NO_ROOM_NOW, NO_SEAT_NOW, STARTS, Mover
from kvbench.serving.request cimport (
    ADMITTED, FETCH, FETCH_NS, FETCH_START, FIRST_TOKEN, PREFILL, PREFILL_NS, PREFILL_START, QUEUE_NS, READY, Request, hold,
    join, leave,
)
from kvbench.serving.traffic cimport Traffic


cdef class Batching:
    """Base of :class:`kvbench.serving.worker.Worker`, which says what the arguments are."""

    def __cinit__(self, int32_t number, Mover mover, Traffic traffic, Observer observer, ComputeModel compute, *,
                  int64_t batch_tokens=8192, int32_t sequences=256, int32_t fetches=8, bint chunked=True,
                  bint blocking=False, bint decodes=True, int64_t step_overhead_ns=0, int64_t rebuild_ns=0):
        self.number = number
        self.mover = mover
        self.traffic = traffic
        self.observer = observer
        self.compute = compute
        self.batch_tokens = batch_tokens
        self.sequences = sequences
        self.fetches = fetches
        self.chunked = chunked
        self.blocking = blocking
        self.decodes_answers = decodes
        self.step_overhead_ns = step_overhead_ns
        self.rebuild_ns = rebuild_ns
        self.heap = <Request**>calloc(sequences, sizeof(Request*))
        self.growing = <Request**>calloc(sequences, sizeof(Request*))
        self.chunks = <Chunk*>calloc(sequences, sizeof(Chunk))
        self.chunk_of = <Request**>calloc(sequences, sizeof(Request*))
        if self.heap == NULL or self.growing == NULL or self.chunks == NULL or self.chunk_of == NULL:
            no_memory("worker", sequences)

    def __dealloc__(self):
        free(self.heap)
        free(self.growing)
        free(self.chunks)
        free(self.chunk_of)

    # -- the next step -------------------------------------------------------------------------

    cdef bint has_seat(self) noexcept nogil:
        """Whether one request more may take part in the step."""
        return self.decoding + self.chunk_count < self.sequences

    cdef int begin_step(self) except -1 nogil:
        """Build the next step and set its end; none without work."""
        cdef Request* request = self.prefilling.first
        self.chunk_count = 0
        self.budget = max(self.batch_tokens - self.decoding, <int64_t>0)
        while request != NULL:
            self.budget -= min(self.add_chunk(request, self.budget), self.budget)
            request = request.next
        self.fill_step()
        if self.chunk_count == 0 and self.decoding == 0:
            return 0
        self.busy = True
        self.step_is_rebuilt = False
        self.step_started_ns = self.traffic.clock.now_ns
        return self.set_end()

    cdef int fill_step(self) except -1 nogil:
        """Have requests that are ready or wait begin, as far as the step takes them."""
        self.budget = self.start_ready(self.budget)
        self.budget = self.admit_waiting(self.budget)
        return 0

    cdef int set_end(self) except -1 nogil:
        """When the step under way ends, as it has been built so far."""
        cdef Step step
        cdef int64_t taken
        cdef int32_t k
        step.chunks = self.chunks
        step.prefills = self.chunk_count
        step.decodes = self.decoding
        step.new_tokens = 0
        for k in range(self.chunk_count):
            step.new_tokens += self.chunks[k].new
        step.decode_context = self.decode_context
        step.held_tokens = self.mover.held_tokens()
        step.capacity_tokens = self.mover.capacity_tokens()
        taken = self.compute.step_ns(&step) + self.step_overhead_ns
        if self.rebuilt and not self.step_is_rebuilt:
            self.rebuilds += 1
            self.step_is_rebuilt = True
        self.rebuilt = False
        if self.step_is_rebuilt:
            taken += self.rebuild_ns
        self.step_number += 1
        return self.traffic.clock.push(self.step_started_ns + taken, STEP_ENDS, self.number, self.step_number)

    cdef int64_t add_chunk(self, Request* request, int64_t budget) noexcept nogil:
        """Have the step compute what it may of a prompt; returns how many tokens that is."""
        cdef int64_t left = request.target - request.computed
        cdef bint first = request.chunk_now == 0
        cdef bint alone = self.chunk_count == 0 and self.decoding == 0
        cdef Chunk* chunk
        if not self.chunked:
            if left > budget and not alone:
                return 0
        else:
            left = min(left, budget)
        if left == 0 or not self.has_seat():
            return 0
        chunk = &self.chunks[self.chunk_count]
        chunk.new = left
        chunk.context = request.computed
        chunk.cached = request.computed if first else 0
        self.chunk_of[self.chunk_count] = request
        self.chunk_count += 1
        request.chunk_now = left
        if request.times[PREFILL_START] < 0:
            request.times[PREFILL_START] = self.traffic.clock.now_ns
        return left

    cdef int64_t start_ready(self, int64_t budget) except -1 nogil:
        """Those that have been fetched come before those that wait."""
        cdef Request* request = self.ready.first
        cdef int64_t taken
        while request != NULL and budget > 0 and self.has_seat():
            taken = self.add_chunk(request, budget)
            if taken == 0:
                return 0  # it is not chunked and has to be alone, which it will not be if others overtake it
            budget -= min(taken, budget)
            leave(&self.ready, request)
            self.pass_state(request, PREFILL)
            join(&self.prefilling, request)
            self.rebuilt = True
            request = self.ready.first
        return budget

    cdef int64_t admit_waiting(self, int64_t budget) except -1 nogil:
        """Give blocks to those that wait, in order of arrival. Where the step takes no more, those that have to be
        fetched for may still begin with that."""
        cdef Request* request = self.waiting.first
        cdef Request* after
        cdef int32_t looked_at = 0
        cdef int admission
        cdef bint may_fetch, may_start
        while request != NULL and looked_at < LOOK_AHEAD:
            after = request.next
            may_fetch = self.fetches == 0 or self.fetching + self.ready.count < self.fetches
            may_start = budget > 0 and self.has_seat()
            if not may_fetch and not may_start:
                break
            looked_at += 1
            if (may_fetch or request.hindrance != NO_FETCH_NOW) and (may_start or request.hindrance != NO_SEAT_NOW):
                admission = self.mover.admit(request, may_fetch, may_start)
                request.hindrance = <unsigned char>admission
                if admission == STARTS or admission == FETCHES:
                    budget -= min(self.take_in(request, admission, budget), budget)
                else:
                    self.mover.settle()  # blocks whose time was over have gone all the same
                if admission == NO_ROOM_NOW:
                    break
            request = after
        return budget

    cdef int64_t take_in(self, Request* request, int admission, int64_t budget) except -1 nogil:
        """A waiting request has its blocks; returns what that takes of the step's budget."""
        cdef int64_t now = self.traffic.clock.now_ns
        cdef int64_t taken = 0
        leave(&self.waiting, request)
        hold(&self.holding, request)
        request.chunk_now = 0
        if request.times[ADMITTED] < 0:
            request.times[ADMITTED] = now
        if admission == FETCHES:
            self.fetching += 1
            self.pass_state(request, FETCH)
            request.times[FETCH_START] = now
            return 0
        taken = self.add_chunk(request, budget)
        if taken:
            self.pass_state(request, PREFILL)
            join(&self.prefilling, request)
            self.rebuilt = True
        else:
            self.pass_state(request, READY)
            join(&self.ready, request)
            taken = budget  # for the reason that start_ready has
        return taken

    cdef void pass_state(self, Request* request, int state) noexcept nogil:
        """Go on to another state; the time in the last one is part of TTFT until there is a token."""
        cdef int64_t now = self.traffic.clock.now_ns
        cdef int64_t spent = now - request.since_ns
        if request.times[FIRST_TOKEN] < 0:
            if request.state == FETCH:
                request.times[FETCH_NS] += spent
            elif request.state == PREFILL:
                request.times[PREFILL_NS] += spent
            else:
                request.times[QUEUE_NS] += spent
        request.state = <unsigned char>state
        request.since_ns = now

    # -- those that decode ---------------------------------------------------------------------

    cdef int64_t generated_by(self, const Request* request) noexcept nogil:
        """Tokens of the answer of a decoding request so far."""
        return request.generated + self.decode_step - request.first_step

    cdef void plan_due(self, Request* request) noexcept nogil:
        """When a decoding request ends, or has filled its blocks."""
        cdef int64_t so_far = self.generated_by(request)
        cdef int64_t full = request.held_chunks * self.mover.chunk_tokens - request.prompt + 1
        request.due_step = self.decode_step + min(request.answer, full) - so_far

    cdef int64_t stop_decoding(self, Request* request) noexcept nogil:
        """It takes part in no step any more; returns the tokens that it has."""
        cdef int64_t generated = self.generated_by(request)
        if request.place >= 0:
            self.heap_remove(request)
        self.decoding -= 1
        self.decode_context -= request.prompt + generated
        return generated

    cdef int heap_push(self, Request* request) except -1 nogil:
        request.place = self.heap_count
        self.heap[self.heap_count] = request
        self.heap_count += 1
        self.sift_up(request.place)
        return 0

    cdef void heap_remove(self, Request* request) noexcept nogil:
        cdef int32_t at = request.place
        cdef Request* last
        self.heap_count -= 1
        last = self.heap[self.heap_count]
        request.place = -1
        if last == request:
            return
        self.heap[at] = last
        last.place = at
        self.sift_up(at)
        self.sift_down(last.place)

    cdef void sift_up(self, int32_t at) noexcept nogil:
        cdef Request* request = self.heap[at]
        cdef int32_t above
        while at > 0:
            above = (at - 1) // 2
            if not sooner(request, self.heap[above]):
                break
            self.heap[at] = self.heap[above]
            self.heap[at].place = at
            at = above
        self.heap[at] = request
        request.place = at

    cdef void sift_down(self, int32_t at) noexcept nogil:
        cdef Request* request = self.heap[at]
        cdef int32_t below = 2 * at + 1
        while below < self.heap_count:
            if below + 1 < self.heap_count and sooner(self.heap[below + 1], self.heap[below]):
                below += 1
            if not sooner(self.heap[below], request):
                break
            self.heap[at] = self.heap[below]
            self.heap[at].place = at
            at = below
            below = 2 * at + 1
        self.heap[at] = request
        request.place = at


cdef inline bint sooner(const Request* one, const Request* other) noexcept nogil:
    # By step, then by arrival: never by address.
    return one.due_step < other.due_step or (one.due_step == other.due_step and one.number < other.number)
