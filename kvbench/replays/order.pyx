"""The order loop: requests are served one after another, in trace order.

For each request: score it on the index, choose a worker, look it up there, say why each missing
block is missing, make it resident, and pass the events on to the index. One row of counts comes
out for each request; nothing else is kept.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from kvbench.cache.events cimport EventLog
from kvbench.cache.seen cimport NEVER, TRUNCATED, Seen
from kvbench.cache.tier cimport ACCESS, Tier
from kvbench.eviction.view cimport RequestFacts
from kvbench.checks cimport debug_build
from kvbench.memory cimport no_memory
from kvbench.routing.dispatcher cimport Decision, Dispatcher
from kvbench.routing.load cimport Moment
from kvbench.routing.policy cimport RouteQuery

COUNTS = (
    "worker", "blocks", "cacheable_blocks", "hit_blocks", "resident_blocks", "infinite_hit_blocks",
    "best_blocks", "predicted_blocks", "stored_blocks", "evicted_blocks", "miss_first_seen_blocks",
    "miss_evicted_blocks", "miss_other_worker_blocks", "miss_gap_blocks", "miss_truncated_blocks",
    "truncated_blocks",
)
"""Columns of a row, in order. ``hit_blocks`` is the prefix hit, ``resident_blocks`` counts every
resident block of the request wherever it stands; ``best`` and ``predicted`` are the index's
figures for the best and the chosen worker (semantics §8.4); ``miss_*`` say why a block that was
not hit was missing (§10.2); ``truncated_blocks`` were left out because they do not fit."""

FACTS = ("input_tokens", "turn", "priority", "session_id", "tenant", "type")
"""Columns of a batch's ``facts``: the 32-bit fields of RequestFacts (eviction/view.pxd), in order."""

cdef enum:
    BLOCKS_BETWEEN_SIGNALS = 1 << 20  # about 10 ms of work: Ctrl-C is heard at once


cdef class OrderReplay:
    """One replay. ``places`` has the :class:`~kvbench.cache.Tier` of each worker; ``dispatcher`` and
    ``log`` go with more than one worker; ``seen`` is None to leave first use and eviction untold."""

    def __cinit__(self, list places, *, Dispatcher dispatcher=None, EventLog log=None, Seen seen=None,
                  bint keep_events=False):
        cdef Py_ssize_t i
        if len(places) > 1 and (dispatcher is None or log is None):
            raise ValueError("several workers need a dispatcher and an event log")
        if dispatcher is not None and dispatcher.workers != len(places):
            raise ValueError(f"the dispatcher knows {dispatcher.workers} workers, and there are {len(places)}")
        self.places = places
        self.dispatcher = dispatcher
        self.index = dispatcher.truth if dispatcher is not None else None
        self.log = log
        self.seen = seen
        self.keep_events = keep_events
        self.place_of = <PyObject**>malloc(len(places) * sizeof(PyObject*))
        if self.place_of == NULL:
            raise MemoryError("replay: no memory")
        for i in range(len(places)):
            self.place_of[i] = <PyObject*>places[i]

    def __init__(self, *args, **kwargs):
        self.check_places()

    cdef check_places(self):
        for place in self.places:
            if not isinstance(place, Tier):
                raise TypeError(f"{place!r} is no tier")

    def __dealloc__(self):
        free(self.place_of)
        free(self.states)

    def run(self, const uint64_t[::1] keys, const int64_t[::1] offsets, const int32_t[::1] cacheable,
            int32_t[:, ::1] rows, *, const int64_t[::1] time_ns=None, const int32_t[:, ::1] facts=None,
            const int32_t[::1] next_use=None, const int32_t[::1] outputs=None,
            const int32_t[::1] limits=None, const uint8_t[::1] partials=None):
        """Serve one batch of requests.

        Request i asks for ``keys[offsets[i]:offsets[i + 1]]``, of which the leading
        ``cacheable[i]`` may be stored. ``rows`` (requests × len(COUNTS)) is filled.

        For policies that want to know: ``time_ns`` has each request's arrival, ``facts``
        (requests × len(FACTS)) its other facts, and ``next_use``, beside ``keys``, the number of
        the request that asks for each block next. ``outputs`` counts the keys of each request that
        follow the cacheable ones and are not asked for, but stored with it: blocks of its answer.
        ``limits`` says how many leading blocks of each request may hit, where that is not all, and
        ``partials`` whether it has a partial last block.
        """
        cdef int64_t n = cacheable.shape[0]
        cdef int64_t i, end
        cdef const uint64_t* first = &keys[0] if keys.shape[0] else NULL
        if offsets.shape[0] != n + 1 or rows.shape[0] != n or rows.shape[1] != len(COUNTS):
            raise ValueError("offsets, cacheable and rows do not belong together")
        end = offsets[n]
        if n and (offsets[0] < 0 or end > keys.shape[0]):
            raise ValueError("offsets point outside the keys")
        for i in range(n):
            if not 0 <= cacheable[i] <= offsets[i + 1] - offsets[i] - (outputs[i] if outputs is not None else 0):
                raise ValueError(f"request {i} of the batch has {offsets[i + 1] - offsets[i]} blocks, not {cacheable[i]}")
        if n == 0:
            return
        if time_ns is not None and time_ns.shape[0] != n:
            raise ValueError(f"{time_ns.shape[0]} times for {n} requests")
        if facts is not None and (facts.shape[0] != n or facts.shape[1] != len(FACTS)):
            raise ValueError("facts do not belong to the requests")
        if next_use is not None and next_use.shape[0] != keys.shape[0]:
            raise ValueError(f"{next_use.shape[0]} next uses for {keys.shape[0]} keys")
        self.outputs = &outputs[0] if outputs is not None else NULL
        self.limits = &limits[0] if limits is not None else NULL
        self.partials = &partials[0] if partials is not None else NULL
        self.time_ns = &time_ns[0] if time_ns is not None else NULL
        self.facts = &facts[0, 0] if facts is not None else NULL
        self.next_use = &next_use[0] if next_use is not None and keys.shape[0] else NULL
        with nogil:
            self.reserve(first + offsets[0], end - offsets[0])
            self.serve_all(first, &offsets[0], &cacheable[0], n, <Row*>&rows[0, 0])

    @cython.final
    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        cdef Py_ssize_t i
        with gil:
            for i in range(len(self.places)):
                self.reserve_at(self.place_of[i], keys, n)
        if self.dispatcher is not None:
            self.dispatcher.reserve(keys, n)
        if self.seen is not None:
            self.seen.reserve(keys, n)
        return 0

    @cython.final
    cdef int serve_all(self, const uint64_t* keys, const int64_t* offsets, const int32_t* cacheable,
                       int64_t n, Row* rows) except -1 nogil:
        cdef int64_t i, since_signals = 0
        cdef int64_t end = offsets[n]
        for i in range(n):
            rows[i].blocks = <int32_t>(offsets[i + 1] - offsets[i]) - (self.outputs[i] if self.outputs != NULL else 0)
            self.serve(keys + offsets[i], cacheable[i], end - offsets[i], &rows[i], i, offsets[i])
            self.request += 1
            since_signals += 1 + cacheable[i]
            if since_signals > BLOCKS_BETWEEN_SIGNALS:
                since_signals = 0
                with gil:
                    PyErr_CheckSignals()
        return 0

    @cython.final
    cdef int serve(self, const uint64_t* keys, int32_t n, int64_t readable, Row* row, int64_t i,
                   int64_t offset) except -1 nogil:
        cdef int32_t worker = 0
        if self.log is not None:
            self.hear(i)  # of what was removed since the last request
        row.best_blocks = row.predicted_blocks = -1
        if self.dispatcher is not None:
            worker = self.choose_worker(keys, n, row, i)
        row.worker = worker
        row.cacheable_blocks = n
        row.infinite_hit_blocks = n if self.seen is not None else -1
        row.miss_first_seen_blocks = row.miss_evicted_blocks = row.miss_other_worker_blocks = 0
        row.miss_gap_blocks = row.miss_truncated_blocks = 0
        self.serve_at(
            self.place_of[worker], keys, n, n + (self.outputs[i] if self.outputs != NULL else 0), readable, row, i, offset
        )
        if self.log is not None:
            self.hear(i)
            if not self.keep_events:
                self.log.forget()
        return 0

    @cython.final
    cdef int32_t choose_worker(self, const uint64_t* keys, int32_t n, Row* row, int64_t i) except -1 nogil:
        """Ask the routers who serves request i of the batch."""
        cdef RouteQuery query
        cdef Decision decision
        cdef RequestFacts facts
        facts.input_tokens = facts.session = facts.tenant = -1
        self.tell_facts(&facts, i)
        query.now = self.moment_of(i)
        query.keys = keys
        query.blocks = n
        query.tokens = facts.input_tokens
        query.session = facts.session
        query.tenant = facts.tenant
        self.dispatcher.dispatch(&query, &decision)
        row.best_blocks = decision.best
        row.predicted_blocks = decision.predicted
        self.handle = decision.handle
        return decision.worker

    @cython.final
    cdef Moment moment_of(self, int64_t i) noexcept nogil:
        cdef Moment now
        now.request = self.request
        now.time_ns = self.time_ns[i] if self.time_ns != NULL else 0
        return now

    cdef int reserve_at(self, PyObject* place, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get one worker ready for a batch of keys."""
        return (<Tier>place).reserve(keys, n)

    cdef int serve_at(self, PyObject* place, const uint64_t* keys, int32_t n, int32_t stored, int64_t readable,
                      Row* row, int64_t i, int64_t offset) except -1 nogil:
        """Serve request i of the batch at the chosen worker: it asks for ``n`` blocks, and ``stored`` are kept."""
        self.tell_facts(&(<Tier>place).view.request, i)
        (<Tier>place).view.next_use = self.next_use + offset if self.next_use != NULL else NULL
        if stored == 1 or (<Tier>place).order == ACCESS:
            # For a single block the orders are one and the same; this one is the shorter way.
            row.hit_blocks = min(self.limit_of(i, n), (<Tier>place).access(keys, stored, readable))
            row.resident_blocks = (<Tier>place).resident
            if row.hit_blocks < n:
                self.explain(keys, n, (<Tier>place).slots, row)
            if stored > n:
                row.resident_blocks -= self.note_outputs(keys, (<Tier>place).slots, n, stored)
        else:
            row.hit_blocks = min(self.limit_of(i, n), (<Tier>place).lookup(keys, stored, readable))
            row.resident_blocks = (<Tier>place).resident
            if row.hit_blocks < n:
                self.explain(keys, n, (<Tier>place).slots, row)
            if stored > n:
                row.resident_blocks -= self.note_outputs(keys, (<Tier>place).slots, n, stored)
            (<Tier>place).commit(keys, stored)
        row.stored_blocks = (<Tier>place).stored
        row.evicted_blocks = (<Tier>place).evicted
        row.truncated_blocks = (<Tier>place).truncated
        if row.truncated_blocks and self.seen is not None:
            self.note_truncated(keys, stored, <Tier>place)
        return 0

    @cython.final
    cdef int32_t limit_of(self, int64_t i, int32_t n) noexcept nogil:
        return self.limits[i] if self.limits != NULL else n

    @cython.final
    cdef int note_outputs(self, const uint64_t* keys, const int32_t* slots, int32_t n, int32_t stored) except -1 nogil:
        """Blocks of an answer count as seen from now on; returns how many are resident already."""
        cdef int32_t i, resident = 0
        if self.seen is not None:
            if stored > self.room:
                self.fit_states(stored)
            self.seen.note_missing(keys, slots, n, stored, self.states)
        for i in range(n, stored):
            resident += slots[i] >= 0
        return resident

    @cython.final
    cdef void tell_facts(self, RequestFacts* facts, int64_t i) noexcept nogil:
        facts.index = self.request
        if self.time_ns != NULL:
            facts.time_ns = self.time_ns[i]
        if self.facts != NULL:
            memcpy(&facts.input_tokens, self.facts + i * FACT_COUNT, FACT_COUNT * sizeof(int32_t))

    cdef int hear(self, int64_t i) except -1 nogil:
        """Pass on to the routers the events that they do not know yet, which happen with request i of the batch."""
        cdef int64_t first = self.heard - self.log.forgotten
        if first == self.log.size:
            return 0
        if self.dispatcher is not None:
            self.dispatcher.hear(self.log, max(first, <int64_t>0), self.moment_of(i))
        if debug_build:
            with gil:
                self.check_events(max(first, <int64_t>0))
        self.heard = self.log.forgotten + self.log.size
        return 0

    cdef int check_events(self, int64_t first) except -1:
        """Look, in a debug build, at the events from number ``first`` of the log on."""
        return 0

    @cython.final
    cdef int explain(self, const uint64_t* keys, int32_t n, const int32_t* slots, Row* row) except -1 nogil:
        """Say why each block beyond the prefix hit is a miss, and how far an infinite cache would hit."""
        cdef int32_t i
        cdef int32_t first_seen = 0, evicted = 0, other_worker = 0, gap = 0, truncated = 0
        cdef int32_t infinite = row.hit_blocks
        cdef bint unbroken = True
        if self.seen is not None:
            if n > self.room:
                self.fit_states(n)
            self.seen.note_missing(keys, slots, row.hit_blocks, n, self.states)
        for i in range(row.hit_blocks, n):
            if slots[i] >= 0:
                gap += 1
                infinite += unbroken
            elif self.seen is not None and self.states[i] == NEVER:
                first_seen += 1
                unbroken = False
            else:
                infinite += unbroken
                if self.index is not None and self.index.held_elsewhere(keys[i], row.worker):
                    other_worker += 1
                elif self.seen is not None and self.states[i] == TRUNCATED:
                    truncated += 1
                else:
                    evicted += 1
        if self.seen is not None:
            row.infinite_hit_blocks = infinite
        row.miss_first_seen_blocks = first_seen
        row.miss_evicted_blocks = evicted
        row.miss_other_worker_blocks = other_worker
        row.miss_gap_blocks = gap
        row.miss_truncated_blocks = truncated
        return 0

    @cython.final
    cdef int note_truncated(self, const uint64_t* keys, int32_t n, Tier tier) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            if tier.table.find(keys[i]) < 0:
                self.seen.set_state(keys[i], TRUNCATED)
        return 0

    @cython.final
    cdef int fit_states(self, int64_t n) except -1 nogil:
        cdef uint8_t* states = <uint8_t*>realloc(self.states, 2 * n)
        if states == NULL:
            no_memory("request", n)
        self.states = states
        self.room = 2 * n
        return 0

    @property
    def distinct(self):
        """Distinct keys asked for so far, or None without a seen set."""
        return None if self.seen is None else self.seen.distinct
