"""The requests of a timed replay that are under way: the batches they came in, and a record of each.

A batch is here until all of its requests have ended; records are used again. A request whose arrival depends on
another one stands in the line of its session.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.memory cimport no_memory
from kvbench.replays.order cimport Row
from kvbench.replays.tiered cimport OTHERS, TieredReplay
from kvbench.serving.request cimport STATUS, STATUS_UNFINISHED, TIME_COLUMNS, Queue, Request, join

from kvbench.replays.order import COUNTS
from kvbench.replays.timecolumns import TIMES

cdef enum:
    SLAB = 256                  # requests
    FIRST_BATCHES = 16


cdef class Slab:
    """Some records of requests."""

    def __cinit__(self):
        self.records = <Request*>calloc(SLAB, sizeof(Request))
        if self.records == NULL:
            no_memory("requests", SLAB)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(SLAB if self.records != NULL else 0):
            free(self.records[i].pins)
            free(self.records[i].sources)
        free(self.records)


cdef class TimedFrame(TieredReplay):
    """Base of :class:`kvbench.replays.timed.TimedReplay`; arguments as for :class:`TieredReplay`."""

    def __cinit__(self, *args, **kwargs):
        self.arrays = {}
        self.slabs = []
        self.room = FIRST_BATCHES
        self.batches = <Batch*>calloc(self.room, sizeof(Batch))
        if self.batches == NULL:
            no_memory("batches", self.room)

    def __dealloc__(self):
        free(self.batches)
        free(self.turns)
        free(self.heards)

    # -- batches -------------------------------------------------------------------------------

    def push(self, const uint64_t[::1] keys, const int64_t[::1] offsets, const int32_t[::1] cacheable,
             const int64_t[::1] arrival_ns, const int64_t[::1] input_tokens,
             const int64_t[::1] output_tokens, int32_t[:, ::1] rows, int32_t[:, ::1] tier_rows, int64_t[:, ::1] times,
             *, const int32_t[::1] outputs=None, const int32_t[::1] limits=None, const int32_t[:, ::1] facts=None, const int32_t[::1] sessions=None,
             const int64_t[::1] wait_ns=None):
        """Requests that arrive next, in order of arrival; nothing arrives before ``go_on``.

        As for :meth:`OrderReplay.run`, and: ``arrival_ns`` of each on the simulated clock, never decreasing; -1:
        ``wait_ns`` after the end of the request of its session (``sessions``) that was pushed before it.
        ``times`` (requests × len(TIMES)) is filled like the others, when each
        request ends; :attr:`done_batches` says how many batches, in the order they came, have ended altogether.
        """
        cdef int64_t n = cacheable.shape[0]
        cdef int64_t i
        cdef Batch* batch
        if not (arrival_ns.shape[0] == input_tokens.shape[0] == output_tokens.shape[0] == n
                and rows.shape[0] == tier_rows.shape[0] == times.shape[0] == n):
            raise ValueError("columns do not belong together")
        if offsets.shape[0] != n + 1 or offsets[n] > keys.shape[0] or rows.shape[1] != len(COUNTS):
            raise ValueError("offsets, keys and rows do not belong together")
        if tier_rows.shape[1] != 2 * self.levels + OTHERS or times.shape[1] != len(TIMES):
            raise ValueError("tier_rows and times do not belong to the tiers")
        if n == 0:
            return
        for i in range(n):
            if not 0 <= cacheable[i] <= offsets[i + 1] - offsets[i] - (outputs[i] if outputs is not None else 0) or (
                input_tokens[i] < 1
            ):
                raise ValueError(f"request {i} of the batch has {offsets[i + 1] - offsets[i]} blocks, not {cacheable[i]}")
        if self.next_batch - self.first_batch == self.room:
            self.make_room()
        batch = self.batch_of(self.next_batch)
        batch.keys = &keys[0] if keys.shape[0] else NULL
        batch.offsets = &offsets[0]
        batch.cacheable = &cacheable[0]
        batch.outputs = &outputs[0] if outputs is not None else NULL
        batch.limits = &limits[0] if limits is not None else NULL
        batch.facts = &facts[0, 0] if facts is not None else NULL
        batch.arrivals = &arrival_ns[0]
        batch.prompts = &input_tokens[0]
        batch.answers = &output_tokens[0]
        batch.waits = &wait_ns[0] if wait_ns is not None else NULL
        batch.sessions = &sessions[0] if sessions is not None else NULL
        batch.rows = &rows[0, 0]
        batch.tier_rows = &tier_rows[0, 0]
        batch.times = &times[0, 0]
        batch.size = batch.left = n
        batch.next = 0
        self.arrays[self.next_batch] = [
            keys, offsets, cacheable, arrival_ns, input_tokens, output_tokens, rows, tier_rows, times, outputs,
            limits, facts, sessions, wait_ns,
        ]
        self.reserve(batch.keys, offsets[n])
        self.next_batch += 1
        self.clear_rows(batch)
        if sessions is not None:
            self.line_up(self.next_batch - 1)

    cdef clear_rows(self, Batch* batch):
        cdef int64_t i
        memset(batch.rows, 0, batch.size * sizeof(Row))
        memset(batch.tier_rows, 0, batch.size * (2 * self.levels + OTHERS) * sizeof(int32_t))
        memset(batch.times, 0xff, batch.size * TIME_COLUMNS * sizeof(int64_t))
        for i in range(batch.size):
            batch.times[i * TIME_COLUMNS + STATUS] = STATUS_UNFINISHED

    cdef line_up(self, int64_t number):
        """Requests whose arrival depends on another one wait in the line of their session."""
        cdef Batch* batch = self.batch_of(number)
        cdef int64_t i
        cdef int32_t session, known = self.sessions
        cdef Queue* turns
        for i in range(batch.size):
            known = max(known, batch.sessions[i] + 1)
        if known > self.sessions:
            turns = <Queue*>realloc(self.turns, known * sizeof(Queue))
            if turns == NULL:
                no_memory("sessions", known)
            memset(turns + self.sessions, 0, (known - self.sessions) * sizeof(Queue))
            self.turns = turns
            self.sessions = known
        for i in range(batch.size):
            if batch.arrivals[i] < 0:
                session = batch.sessions[i]
                if session < 0:
                    raise ValueError(f"request {i} of the batch follows nobody")
                join(&self.turns[session], self.make_request(number, i))

    cdef make_room(self):
        """Twice as many batches may be under way."""
        cdef int64_t number
        cdef Batch* batches = <Batch*>calloc(2 * self.room, sizeof(Batch))
        if batches == NULL:
            no_memory("batches", 2 * self.room)
        for number in range(self.first_batch, self.next_batch):
            batches[number % (2 * self.room)] = self.batches[number % self.room]
        free(self.batches)
        self.batches = batches
        self.room *= 2

    @property
    def done_batches(self):
        """How many batches have ended, of those pushed first, without one that has not among them."""
        while self.first_batch < self.next_batch and self.batch_of(self.first_batch).left == 0:
            del self.arrays[self.first_batch]
            self.first_batch += 1
        return self.first_batch

    cdef Batch* batch_of(self, int64_t number) noexcept nogil:
        return &self.batches[number % self.room]

    # -- requests ------------------------------------------------------------------------------

    cdef Request* make_request(self, int64_t number, int64_t i) except NULL:
        """A record of request i of a batch."""
        cdef Batch* batch = self.batch_of(number)
        cdef Request* request
        cdef Request empty
        if self.pool == NULL:
            self.add_slab()
        request = self.pool
        self.pool = request.next
        memset(&empty, 0, sizeof(Request))
        # The arrays of a record that was used before serve again.
        empty.pins, empty.pin_room = request.pins, request.pin_room
        empty.sources, empty.source_room = request.sources, request.source_room
        request[0] = empty
        request.keys = batch.keys + batch.offsets[i]
        request.blocks = batch.cacheable[i]
        request.stored = request.blocks + (batch.outputs[i] if batch.outputs != NULL else 0)
        request.limit = batch.limits[i] if batch.limits != NULL else batch.cacheable[i]
        request.row = batch.rows + i * (sizeof(Row) // sizeof(int32_t))
        request.tier_row = batch.tier_rows + i * (2 * self.levels + OTHERS)
        request.times = batch.times + i * TIME_COLUMNS
        request.index = i
        request.batch = number
        request.prompt = batch.prompts[i]
        request.answer = batch.answers[i]
        request.wait_ns = batch.waits[i] if batch.waits != NULL else 0
        request.session = batch.sessions[i] if batch.sessions != NULL else -1
        request.fresh = True
        return request

    cdef int add_slab(self) except -1:
        cdef Slab slab = Slab()
        cdef int32_t i
        self.slabs.append(slab)
        for i in range(SLAB):
            slab.records[i].next = self.pool
            self.pool = &slab.records[i]
        return 0

    # -- when events happened ------------------------------------------------------------------

    cdef int note_time(self) except -1 nogil:
        """The events up to here happened by now."""
        cdef Heard* heards
        if self.heard_count == self.heard_room:
            heards = <Heard*>realloc(self.heards, (2 * self.heard_room + 1024) * sizeof(Heard))
            if heards == NULL:
                no_memory("event times", self.heard_room)
            self.heards = heards
            self.heard_room = 2 * self.heard_room + 1024
        self.heards[self.heard_count].stop = self.heard
        self.heards[self.heard_count].time_ns = self.clock.now_ns
        self.heard_count += 1
        return 0

    def take_event_times(self):
        """How many events of the log happened one after another at one time, and when, in pairs; they are told once."""
        cdef int64_t i, first = self.log.forgotten
        found = []
        for i in range(self.heard_count):
            found.append((self.heards[i].stop - first, self.heards[i].time_ns))
            first = self.heards[i].stop
        self.heard_count = 0
        return found
