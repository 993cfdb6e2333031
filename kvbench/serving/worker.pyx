"""A worker: requests wait, are fetched for, prefilled and decoded, in steps (semantics §9.2, §9.3).

A step is built when the one before it ends (:mod:`kvbench.serving.batching`). What comes at the very moment at which
it begins still joins it.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t

from kvbench.cache.stacked cimport StackedTier
from kvbench.serving.batching cimport RECENT, Batching
from kvbench.serving.mover cimport STARTS
from kvbench.serving.request cimport (
    ARRIVAL, COMPUTED_TOKENS, DECODE, END, FETCH, FETCH_END, FIRST_TOKEN, GENERATED_TOKENS, NEED_BLOCKS,
    PREEMPTIONS, PREFILL, READY, STATUS, STATUS_DONE, STATUS_REJECTED, WAITING, WRITING, Request, join,
    join_first, leave, let_go,
)


cdef class Worker(Batching):
    """One worker; ``mover`` has its tiers.

    ``batch_tokens``  of a step at most, unless a prompt that is not ``chunked`` is longer.
    ``sequences``     requests in a step at most.
    ``fetches``       requests fetching, or fetched and not started, at most; 0: any number.
    ``blocking``      a request ends when its blocks have been written to all tiers, and holds them until then.
    ``decodes``       requests generate all of their answer, not its first token only.
    ``step_overhead_ns``, ``rebuild_ns``  added to every step, and to one whose batch is not that of the one before.
    """

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
            if request.state == DECODE:
                # The step under way computes the KV of its last token.
                tokens = request.prompt + self.generated_by(request)
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
