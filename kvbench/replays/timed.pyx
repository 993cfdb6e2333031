"""The timed loop: requests overlap on the simulated clock (semantics §9).

Requests arrive, are routed, and go through their worker (:mod:`kvbench.serving.worker`); what happens next is
the earliest of three: a transfer ends, an alarm of the clock rings, a request arrives. At one time they come in
this order, so that what takes no time is over before the next request looks.

A row of counts, a row of tier counts and a row of times come out for each request, when it ends.
"""

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.cache.stack cimport TierStack
from kvbench.checks cimport debug_build
from kvbench.memory cimport no_memory
from kvbench.replays.order cimport Row
from kvbench.replays.tiered cimport DECLINED_AT
from kvbench.replays.timedframe cimport Batch, TimedFrame
from kvbench.routing.load cimport Moment
from kvbench.serving.batching cimport ARRIVES, CALLS, STEP_ENDS
from kvbench.serving.clock cimport NEVER_NS, Alarm
from kvbench.serving.holdings cimport Observer
from kvbench.serving.request cimport (
    ARRIVAL, COMPUTED_TOKENS, DECLINED_BLOCKS, FETCH_NS, PREEMPTIONS, PREFILL_NS, QUEUE_NS, READMITTED_BLOCKS, ROUTED_AT,
    Request, leave,
)
from kvbench.serving.traffic cimport Traffic
from kvbench.serving.worker cimport Worker

cdef enum:
    TURNS_BETWEEN_SIGNALS = 1 << 14
    UNKNOWN_NS = -2             # the batch is over, and there may be another


cdef class Recorder(Observer):
    """Writes down in ``replay`` what the workers do."""

    cdef int tell_facts(self, Request* request) except -1 nogil:
        return self.replay.tell(request)

    cdef int looked_up(self, Request* request) except -1 nogil:
        return self.replay.look_up(request)

    cdef int committed(self, Request* request) except -1 nogil:
        return self.replay.store(request)

    cdef int changed(self) except -1 nogil:
        return self.replay.pass_on()

    cdef int prefill_ended(self, Request* request) except -1 nogil:
        return self.replay.prefill_is_over(request)

    cdef int answer_stored(self, Request* request) except -1 nogil:
        return self.replay.count_answer(request)

    cdef int ended(self, Request* request) except -1 nogil:
        return self.replay.end(request)


cdef class TimedReplay(TimedFrame):
    """One timed replay; arguments as for :class:`TieredReplay`. ``employ`` then gives it the workers.

    ``stopped``    why it ended before its requests did, or empty.
    ``in_flight``  requests that have arrived and not ended.
    """

    def __cinit__(self, *args, **kwargs):
        self.stopped = ""
        self.stop_ns = NEVER_NS

    def __dealloc__(self):
        free(self.worker_of)

    def employ(self, Traffic traffic, list workers, *, int64_t concurrency=0, stop_ns=None,
               int64_t stall_steps=1_000_000, int64_t sample_ns=0, sampler=None):
        """Have ``workers`` (:class:`kvbench.serving.worker.Worker`) serve the requests, whose observer is the
        :class:`Recorder` of this replay.

        ``concurrency``  so many requests are in flight, whatever their arrivals; 0: they arrive in time.
        ``stop_ns``      what happens later is left out.
        ``stall_steps``  steps of a worker without a token, after which the run is given up.
        ``sample_ns``    between two calls of ``sampler(time_ns)``, after all that happens at that time, and as long
                         as something is to happen later; 0: none.
        """
        cdef int32_t i
        self.traffic = traffic
        self.clock = traffic.clock
        self.transfers = traffic.transfers
        self.workers = workers
        self.concurrency = concurrency
        self.stop_ns = NEVER_NS if stop_ns is None else stop_ns
        self.stall_steps, self.sample_ns = stall_steps, sample_ns
        self.sampler = sampler
        self.worker_of = <PyObject**>calloc(len(workers), sizeof(PyObject*))
        if self.worker_of == NULL:
            no_memory("workers", len(workers))
        for i in range(<int32_t>len(workers)):
            self.worker_of[i] = <PyObject*>(<Worker?>workers[i])
        self.next_sample_ns = 0 if sample_ns else NEVER_NS

    def call_at(self, times_ns, callback):
        """Have ``callback(time_ns)`` called at these times of the clock."""
        self.callback = callback
        for time_ns in times_ns:
            self.clock.push(time_ns, CALLS, 0, 0)
            self.calls += 1

    @property
    def now_ns(self):
        """Time of the simulated clock."""
        return self.clock.now_ns

    def observe_links(self):
        """Bring the counters of the links to this moment."""
        self.transfers.advance(self.clock.now_ns)
        self.transfers.observe(self.clock.now_ns)

    @property
    def recorder(self):
        """The observer that the workers are to have."""
        cdef Recorder recorder = Recorder()
        recorder.replay = self
        return recorder

    # -- the loop ------------------------------------------------------------------------------

    def go_on(self, *, bint final=False):
        """Until the last pushed request has arrived; with ``final`` until all have ended, or nothing can
        happen any more, or the time is over. Returns whether there is more to come."""
        with nogil:
            self.loop(final)
        return not self.stopped

    cdef int loop(self, bint final) except -1 nogil:
        cdef int64_t arrival_ns, alarm_ns, moved_ns, next_ns
        cdef int32_t turns = 0
        while not self.is_stopped:
            arrival_ns = self.next_arrival_ns()
            if arrival_ns == UNKNOWN_NS:
                if not final:
                    return 0
                arrival_ns = NEVER_NS
            alarm_ns = self.clock.next_ns()
            moved_ns = self.transfers.next_ns()
            if arrival_ns == moved_ns == NEVER_NS and self.clock.count == self.calls:
                alarm_ns = NEVER_NS  # faults would begin and end, and nobody would see it
            next_ns = min(arrival_ns, min(alarm_ns, moved_ns))
            if self.next_sample_ns < next_ns < NEVER_NS and self.next_sample_ns <= self.stop_ns:
                self.take_sample()
                continue
            if self.stop_ns < next_ns < NEVER_NS:
                self.clock.move_to(self.stop_ns)
                return self.give_up(True)
            if moved_ns <= alarm_ns and moved_ns <= arrival_ns:
                if moved_ns == NEVER_NS:
                    return self.give_up(False) if self.in_flight else 0
                self.move()
            elif alarm_ns <= arrival_ns:
                self.ring()
            else:
                self.arrive_next()
            if debug_build:
                with gil:
                    self.check_all()
            turns += 1
            if turns == TURNS_BETWEEN_SIGNALS:
                turns = 0
                with gil:
                    PyErr_CheckSignals()
        return 0

    cdef check_all(self):
        """Semantics §13 in a debug build, after every event."""
        assert self.arrived == self.ended + self.in_flight
        assert self.in_flight == sum(worker.served_requests for worker in self.workers)
        for worker in self.workers:
            worker.verify()
        for stack in self.places:
            for level in (<TierStack>stack).tiers:
                for tier in level:
                    assert 0 <= tier.pending <= tier.used and 0 <= tier.pinned <= tier.used
                    assert tier.capacity is None or 0 <= tier.used <= tier.capacity
                    assert tier.held_back >= 0

    cdef int64_t next_arrival_ns(self) noexcept nogil:
        """When the next request of the trace arrives."""
        cdef Batch* batch
        while self.reading < self.next_batch:
            batch = self.batch_of(self.reading)
            while batch.sessions != NULL and batch.next < batch.size and batch.arrivals[batch.next] < 0:
                batch.next += 1  # it waits in the line of its session
            if batch.next < batch.size:
                if self.concurrency:
                    return self.clock.now_ns if self.in_flight < self.concurrency else NEVER_NS
                return batch.arrivals[batch.next]
            self.reading += 1
        return UNKNOWN_NS

    cdef int arrive_next(self) except -1 nogil:
        cdef Batch* batch = self.batch_of(self.reading)
        cdef Request* request
        if not self.concurrency:
            self.clock.move_to(max(batch.arrivals[batch.next], self.clock.now_ns))
        with gil:
            request = self.make_request(self.reading, batch.next)
        batch.next += 1
        return self.start(request)

    cdef int start(self, Request* request) except -1 nogil:
        """A request arrives: the routers choose a worker."""
        cdef int64_t* times = request.times
        cdef Row* row = <Row*>request.row
        cdef Batch* batch = self.batch_of(request.batch)
        request.number = self.arrived
        self.in_flight += 1
        self.arrived += 1
        times[ARRIVAL] = self.clock.now_ns
        times[QUEUE_NS] = times[FETCH_NS] = times[PREFILL_NS] = 0
        times[COMPUTED_TOKENS] = times[PREEMPTIONS] = times[DECLINED_BLOCKS] = times[READMITTED_BLOCKS] = 0
        row.blocks = <int32_t>(batch.offsets[request.index + 1] - batch.offsets[request.index]) - (
            request.stored - request.blocks
        )
        row.cacheable_blocks = request.blocks
        row.best_blocks = row.predicted_blocks = -1
        self.enter(request)
        self.pass_on()
        if self.dispatcher is not None:
            request.worker = self.choose_worker(request.keys, request.blocks, row, request.index)
            request.handle = self.handle
        row.worker = request.worker
        times[ROUTED_AT] = self.clock.now_ns
        return (<Worker>self.worker_of[request.worker]).arrive(request)

    cdef int ring(self) except -1 nogil:
        """The next alarm rings."""
        cdef Alarm alarm
        cdef PyObject* worker
        self.clock.pop(&alarm)
        if alarm.kind == STEP_ENDS:
            worker = self.worker_of[alarm.worker]
            (<Worker>worker).end_step(alarm.data)
            if (<Worker>worker).idle_steps > self.stall_steps:
                self.give_up(False)
        elif alarm.kind == CALLS:
            self.calls -= 1
            with gil:
                self.callback(alarm.time_ns)
        else:
            self.start(<Request*>alarm.data)
        return 0

    cdef int take_sample(self) except -1 nogil:
        self.clock.move_to(self.next_sample_ns)
        with gil:
            self.sampler(self.next_sample_ns)
        self.next_sample_ns += self.sample_ns
        return 0

    cdef int move(self) except -1 nogil:
        """Transfers end."""
        cdef int64_t handle, owner, end_ns
        cdef int32_t write
        cdef PyObject* worker
        cdef Request* request
        self.clock.move_to(self.transfers.next_ns())
        self.transfers.advance(self.clock.now_ns)
        while self.transfers.pop_done(&handle, &owner, &end_ns):
            if not owner & 1:
                request = <Request*>owner
                (<Worker>self.worker_of[request.worker]).fetched(request)
                continue
            write = <int32_t>(owner >> 1)
            request = self.traffic.writes[write].request
            worker = self.worker_of[self.traffic.writes[write].worker]
            (<Worker>worker).mover.write_ended(write)
            (<Worker>worker).written(request)
            self.pass_on()
        return 0

    cdef int give_up(self, bint is_late) except -1 nogil:
        """The time is over, or nothing goes on."""
        self.is_stopped = True
        with gil:
            self.stopped = "time limit" if is_late else "no progress"
        return 0

    def stop(self, str why):
        """End the run now."""
        self.is_stopped = True
        self.stopped = why

    # -- what the workers tell -----------------------------------------------------------------

    cdef void enter(self, Request* request) noexcept nogil:
        """The batch of a request is the one at hand."""
        cdef Batch* batch = self.batch_of(request.batch)
        self.facts = batch.facts
        self.request = request.number
        self.now_ns_of_one = self.clock.now_ns
        # Of one row only, whose index is taken away again: the time is that of the clock, not of the trace.
        self.time_ns = &self.now_ns_of_one - request.index

    cdef int tell(self, Request* request) except -1 nogil:
        cdef PyObject* stack = self.place_of[request.worker]
        self.enter(request)
        self.tell_facts(&(<TierStack>stack).request, request.index)
        (<TierStack>stack).next_use = NULL
        return 0

    cdef int look_up(self, Request* request) except -1 nogil:
        """Count what a lookup found, and why the rest is missing."""
        cdef PyObject* stack = self.place_of[request.worker]
        cdef Row* row = <Row*>request.row
        cdef int32_t n = request.blocks
        cdef int32_t declined = <int32_t>request.times[DECLINED_BLOCKS]
        row.hit_blocks = (<TierStack>stack).hit
        row.infinite_hit_blocks = n if self.seen is not None else -1
        self.count_tiers(<TierStack>stack, n, request.tier_row)
        if row.hit_blocks < n:
            self.explain(request.keys, n, (<TierStack>stack).found, row)
            if self.seen is not None:
                self.explain_tiers(request.keys, <TierStack>stack, n, row, request.tier_row)
        request.tier_row[2 * self.levels + DECLINED_AT] = declined
        row.miss_gap_blocks -= declined
        row.resident_blocks = (<TierStack>stack).resident
        return 0

    cdef int store(self, Request* request) except -1 nogil:
        """Count what became of it."""
        cdef PyObject* stack = self.place_of[request.worker]
        cdef Row* row = <Row*>request.row
        row.stored_blocks = (<TierStack>stack).stored
        row.evicted_blocks = (<TierStack>stack).evicted
        row.truncated_blocks = self.note_outcome(request.keys, request.blocks, <TierStack>stack)
        return 0

    cdef int count_answer(self, Request* request) except -1 nogil:
        """The blocks of its answer count as seen from now on."""
        cdef PyObject* stack = self.place_of[request.worker]
        cdef Row* row = <Row*>request.row
        self.note_outputs(request.keys, (<TierStack>stack).found, request.blocks, request.stored)
        row.stored_blocks += (<TierStack>stack).stored
        row.evicted_blocks += (<TierStack>stack).evicted
        return 0

    cdef int pass_on(self) except -1 nogil:
        """Events go to the routers."""
        cdef int64_t first
        cdef Moment now
        if self.log is None:
            return 0
        first = self.heard - self.log.forgotten
        if first == self.log.size:
            return 0
        now.request = self.request
        now.time_ns = self.clock.now_ns
        if self.dispatcher is not None:
            self.dispatcher.hear(self.log, max(first, <int64_t>0), now)
        if debug_build:
            with gil:
                self.check_events(max(first, <int64_t>0))
        self.heard = self.log.forgotten + self.log.size
        if self.keep_events:
            return self.note_time()
        self.log.forget()
        return 0

    cdef int prefill_is_over(self, Request* request) except -1 nogil:
        """The routers learn that a request decodes. After a preemption it prefills again, which nobody hears of."""
        if self.dispatcher is None or request.told:
            return 0
        request.told = True
        return self.dispatcher.prefill_ended(request.handle, self.moment_of_request(request))

    cdef Moment moment_of_request(self, const Request* request) noexcept nogil:
        cdef Moment now
        now.request = request.number
        now.time_ns = self.clock.now_ns
        return now

    cdef int end(self, Request* request) except -1 nogil:
        """A request is done or rejected; the next turn of its session follows."""
        cdef Batch* batch = self.batch_of(request.batch)
        cdef Request* turn
        batch.left -= 1
        self.in_flight -= 1
        self.ended += 1
        if self.dispatcher is not None:
            if not request.told:
                self.dispatcher.prefill_ended(request.handle, self.moment_of_request(request))
            self.dispatcher.ended(request.handle, self.moment_of_request(request))
        if request.session >= 0 and self.turns[request.session].first != NULL:
            turn = self.turns[request.session].first
            leave(&self.turns[request.session], turn)
            self.clock.push(self.clock.now_ns + turn.wait_ns, ARRIVES, 0, <int64_t>turn)
        request.next = self.pool
        self.pool = request
        return 0
