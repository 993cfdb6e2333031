"""A worker: requests wait, are fetched for, prefilled and decoded, in steps (semantics §9.2, §9.3).

A step takes all decoding requests, one token each, and chunks of prompts up to a token budget. It is built
when the one before it ends: running prompts first, then those that have been fetched, then those that wait, in
order of arrival. What comes at the very moment at which a step begins still joins it. A waiting request is passed
over only while it may not fetch, or another one computes what it needs; the first that finds no room ends the scan.
One that lacked a fetch, or a seat, is looked up again when there is one: that something else would do by now is not
found out before.

Requests that decode cost nothing between the steps at which something happens to them: how many tokens
each has is counted by steps, and a heap knows who needs a block or ends next.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc

from kvbench.cache.stacked cimport StackedTier
from kvbench.memory cimport no_memory
from kvbench.serving.compute cimport Chunk, ComputeModel, Step
from kvbench.serving.holdings cimport Observer
from kvbench.serving.mover cimport FETCHES, NO_FETCH_NOW, NO_ROOM_NOW, NO_SEAT_NOW, STARTS, Mover
from kvbench.serving.request cimport (
    ADMITTED, ARRIVAL, COMPUTED_TOKENS, DECODE, END, FETCH, FETCH_END, FETCH_NS, FETCH_START, FIRST_TOKEN, GENERATED_TOKENS,
    NEED_BLOCKS, PREEMPTIONS, PREFILL, PREFILL_NS, PREFILL_START, QUEUE_NS, READY, STATUS, STATUS_DONE, STATUS_REJECTED,
    WAITING, WRITING, Queue, Request, hold, join, join_first, leave, let_go,
)
from kvbench.serving.traffic cimport Traffic


cdef class Worker:
    """One worker; ``mover`` has its tiers.

    ``batch_tokens``  of a step at most, unless a prompt that is not ``chunked`` is longer.
    ``sequences``     requests in a step at most.
    ``fetches``       requests fetching, or fetched and not started, at most; 0: any number.
    ``blocking``      a request ends when its blocks have been written to all tiers, and holds them until then.
    ``decodes``       requests generate all of their answer, not its first token only.
    ``step_overhead_ns``, ``rebuild_ns``  added to every step, and to one whose batch is not that of the one before.
    """

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

    @property
    def waiting_requests(self):
        return self.waiting.count

    @property
    def held_requests(self):
        """Requests that hold blocks."""
        return self.holding.count

    @property
    def busy_ns(self):
        """Time in steps so far, in that under way, too."""
        return self.stepped_ns + (self.traffic.clock.now_ns - self.step_started_ns if self.busy else 0)

    @property
    def served_requests(self):
        """Requests that are here and have not ended."""
        return self.waiting.count + self.holding.count

    def verify(self):
        """Raise AssertionError where the account of requests and blocks does not hold."""
        cdef Request* request = self.holding.first
        cdef int64_t held = 0, pins = 0
        cdef PyObject* gpu = self.mover.gpu_at(0)
        assert self.holding.count == (
            self.fetching + self.ready.count + self.prefilling.count + self.decoding + self.writing
        ), "a request is in no state"
        while request != NULL:
            held += request.held_chunks
            pins += self.mover.pins_in(request, gpu)
            if request.state == DECODE and self.heap_count:
                tokens = request.prompt + self.generated_by(request) - 1
                assert request.held_chunks == self.mover.chunks_for(tokens), "blocks held are not those of its tokens"
            request = request.later
        if (<StackedTier>gpu).limited:
            assert held - pins == (<StackedTier>gpu).held_back, "private blocks are not those that are held back"

    @property
    def recent_ttft_ns(self):
        """TTFT of the last requests that got a first token, RECENT at most, in no order."""
        return [self.recent[i] for i in range(min(self.first_tokens, RECENT))]

    @property
    def states(self):
        """How many requests are waiting, fetching, ready, prefilling and decoding."""
        return self.waiting.count, self.fetching, self.ready.count, self.prefilling.count, self.decoding

    # -- requests come -------------------------------------------------------------------------

    cdef int arrive(self, Request* request) except -1 nogil:
        """A request was routed here. One that can never fit, with its answer, is rejected."""
        cdef int64_t lifetime = request.prompt
        if self.decodes_answers:
            lifetime += max(request.answer - 1, <int64_t>0)
        request.target = request.prompt
        request.state = WAITING
        request.since_ns = self.traffic.clock.now_ns
        request.place = -1
        request.writes = -1
        if not self.mover.fits_ever(lifetime):
            request.times[STATUS] = STATUS_REJECTED
            request.times[NEED_BLOCKS] = self.mover.chunks_for(lifetime) * self.mover.stack.level[0].multiple
            return self.observer.ended(request)
        join(&self.waiting, request)
        return self.wake()

    cdef int fetched(self, Request* request) except -1 nogil:
        """A transfer that the request waits for has ended; with the last one it is ready."""
        request.moves -= 1
        if request.moves:
            return 0
        self.fetching -= 1
        self.mover.fetch_ended(request)
        request.times[FETCH_END] = self.traffic.clock.now_ns
        self.pass_state(request, READY)
        join(&self.ready, request)
        self.mover.settle()
        return self.wake()

    cdef int written(self, Request* request) except -1 nogil:
        """One of its writes has ended; with the last one a request that only waited for them is done."""
        if request != NULL and request.state == WRITING and request.writes < 0:
            self.writing -= 1
            self.let_go_of(request)
            self.wake()
        return 0

    cdef int wake(self) except -1 nogil:
        """Begin a step, or join the one that began at this very moment; another one that is under way goes on."""
        cdef int32_t chunks = self.chunk_count
        if not self.busy:
            return self.begin_step()
        if self.step_started_ns == self.traffic.clock.now_ns:
            self.fill_step()
            if self.chunk_count > chunks:
                return self.set_end()
        return 0

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

    # -- a step begins -------------------------------------------------------------------------

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
                if admission == NO_ROOM_NOW:
                    break
                if admission == STARTS or admission == FETCHES:
                    budget -= min(self.take_in(request, admission, budget), budget)
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

    # -- a step ends ---------------------------------------------------------------------------

    cdef int end_step(self, int64_t number) except -1 nogil:
        """Its tokens are there; the next one begins. Nothing happens where the step has another end by now."""
        cdef Request* request
        cdef int32_t k, growing
        if number != self.step_number:
            return 0
        self.busy = False
        self.steps += 1
        self.idle_steps += 1
        self.stepped_ns += self.traffic.clock.now_ns - self.step_started_ns
        for k in range(self.chunk_count):
            request = self.chunk_of[k]
            request.computed += request.chunk_now
            request.times[COMPUTED_TOKENS] += request.chunk_now
            self.prefill_tokens += request.chunk_now
            self.mover.land_computed(request)
        growing = self.decode_on()
        for k in range(self.chunk_count):
            if self.chunk_of[k].computed == self.chunk_of[k].target:
                growing += self.give_token(self.chunk_of[k], growing)
        for k in range(growing):
            if self.growing[k].state == DECODE:  # none before it has taken its blocks away
                self.grow(self.growing[k])
        return self.begin_step()

    cdef int32_t decode_on(self) except -1 nogil:
        """One token for all that decode; returns how many of them need a block for their next one."""
        cdef Request* request
        cdef int32_t growing = 0
        if self.decoding == 0:
            return 0
        self.idle_steps = 0
        self.decode_step += 1
        self.decode_context += self.decoding
        self.decode_tokens += self.decoding
        while self.heap_count and self.heap[0].due_step <= self.decode_step:
            request = self.heap[0]
            self.heap_remove(request)
            if self.generated_by(request) >= request.answer:
                self.finish(request)
            else:
                self.growing[growing] = request
                growing += 1
        return growing

    cdef int32_t give_token(self, Request* request, int32_t growing) except -1 nogil:
        """A prompt is complete, and its next token is there; returns 1 if the one after needs a block."""
        leave(&self.prefilling, request)
        self.idle_steps = 0
        self.rebuilt = True
        self.pass_state(request, DECODE)
        if request.answer > 0:
            request.generated += 1
            if request.times[FIRST_TOKEN] < 0:
                request.times[FIRST_TOKEN] = self.traffic.clock.now_ns
                self.recent[self.first_tokens % RECENT] = self.traffic.clock.now_ns - request.times[ARRIVAL]
                self.first_tokens += 1
        self.decoding += 1
        request.first_step = self.decode_step
        self.decode_context += request.prompt + request.generated
        self.observer.prefill_ended(request)
        if not self.decodes_answers or request.generated >= request.answer:
            self.finish(request)
            return 0
        if request.held_chunks * self.mover.chunk_tokens >= request.prompt + request.generated:
            self.plan_due(request)
            self.heap_push(request)
            return 0
        self.growing[growing] = request
        return 1

    cdef int64_t generated_by(self, const Request* request) noexcept nogil:
        """Tokens of the answer of a decoding request so far."""
        return request.generated + self.decode_step - request.first_step

    cdef void plan_due(self, Request* request) noexcept nogil:
        """When a decoding request ends, or has filled its blocks."""
        cdef int64_t so_far = self.generated_by(request)
        cdef int64_t full = request.held_chunks * self.mover.chunk_tokens - request.prompt + 1
        request.due_step = self.decode_step + min(request.answer, full) - so_far

    cdef int grow(self, Request* request) except -1 nogil:
        """A block more for a decoding request, at the expense of the latest one where there is none left."""
        cdef Request* victim
        while not self.mover.grow(request):
            victim = self.latest()
            self.preempt(victim)
            if victim == request:
                return 0
        self.plan_due(request)
        return self.heap_push(request)

    cdef Request* latest(self) noexcept nogil:
        """Of those that hold blocks and can give them up, the one that was admitted last."""
        cdef Request* request = self.holding.last
        while request.state == FETCH or request.state == WRITING:
            request = request.earlier
        return request

    cdef int preempt(self, Request* request) except -1 nogil:
        """Take all blocks away; it waits, before all others, and computes its tokens again."""
        self.preemptions += 1
        self.rebuilt = self.rebuilt or request.state != READY
        request.times[PREEMPTIONS] += 1
        if request.state == DECODE:
            request.generated = self.stop_decoding(request)
        elif request.state == PREFILL:
            leave(&self.prefilling, request)
        else:
            leave(&self.ready, request)
        let_go(&self.holding, request)
        self.mover.release(request)
        request.target = request.prompt + request.generated
        request.computed = 0
        request.hindrance = STARTS
        self.pass_state(request, WAITING)
        join_first(&self.waiting, request)
        return 0

    cdef int64_t stop_decoding(self, Request* request) noexcept nogil:
        """It takes part in no step any more; returns the tokens that it has."""
        cdef int64_t generated = self.generated_by(request)
        if request.place >= 0:
            self.heap_remove(request)
        self.decoding -= 1
        self.decode_context -= request.prompt + generated
        return generated

    cdef int finish(self, Request* request) except -1 nogil:
        """It has all its tokens."""
        self.idle_steps = 0
        self.rebuilt = True
        request.generated = self.stop_decoding(request)
        request.times[GENERATED_TOKENS] = request.generated
        if self.blocking and request.writes >= 0:
            self.pass_state(request, WRITING)
            self.writing += 1
            return 0
        return self.let_go_of(request)

    cdef int let_go_of(self, Request* request) except -1 nogil:
        request.times[END] = self.traffic.clock.now_ns
        request.times[STATUS] = STATUS_DONE
        self.ended += 1
        let_go(&self.holding, request)
        self.mover.release(request)
        if self.decodes_answers and request.stored > request.blocks:
            self.mover.store_answer(request)
        return self.observer.ended(request)

    # -- the heap of those that decode ---------------------------------------------------------

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
