"""A tier: a bounded set of blocks, the policy that orders them, and the exact account of both.

Serving a request takes two calls (semantics §5.1). ``lookup`` asks for all of its blocks and
changes nothing. ``commit`` makes room among blocks that are not its own, then sweeps over the
whole request once, touching what is resident and storing what is not. ``access`` does both
block by block instead, as a plain cache simulator does.

The tier owns residency, pins and counts. Its policy is told of runs of slots and asked for
victims; every victim is checked.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc

from kvbench.cache.events cimport COMPUTED, INSERT
from kvbench.cache.table cimport ABSENT, ABSENT_EVICTED
from kvbench.cache.victims cimport VictimStore
from kvbench.checks cimport debug_build
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.view cimport STORED_NOW
from kvbench.memory cimport no_memory

from kvbench.errors import ConfigError

ORDERS = {"tail-first": TAIL_FIRST, "head-first": HEAD_FIRST, "access": ACCESS}
"""Names of the sweep orders of semantics §5.1."""


cdef class Tier(VictimStore):
    """One tier of one worker.

    ``policy``  an :class:`~kvbench.eviction.EvictionPolicy` made for this tier's capacity, or
                None for a tier without bound, which never evicts and keeps no order.
    ``order``   ``tail-first``, ``head-first`` or ``access``.
    ``dense``   keys are dense block ids (see :mod:`kvbench.cache.table`).
    ``log``     where INSERT and DELETE events go, or None.
    """

    def __cinit__(self, EvictionPolicy policy=None, *, str order="tail-first", **kwargs):
        if order not in ORDERS:
            raise ConfigError(f"order {order!r} is not one of {', '.join(ORDERS)}")
        self.order = ORDERS[order]
        self.noted = self.log is not None
        self.makes_room = self.limited and not self.policy.never_evicts
        self.mask = NULL

    def __dealloc__(self):
        free(self.slots)
        free(self.sweep)

    # -- one request ---------------------------------------------------------------------------

    @cython.final
    cdef int32_t lookup(self, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil:
        """Find all blocks of a request; returns the prefix hit in blocks. Moves nothing."""
        cdef int32_t prefix = 0
        if n > self.scratch:
            self.fit_scratch(n)
        self.stored = self.evicted = self.truncated = 0
        if self.limited and self.policy.expires:
            self.drop_unwanted()
        self.resident = <int32_t>self.table.find_many(keys, n, readable, self.slots)
        if self.resident == n:
            return n
        while self.slots[prefix] >= 0:
            prefix += 1
        return prefix

    @cython.final
    cdef int commit(self, const uint64_t* keys, int32_t n) except -1 nogil:
        """Make the request that was just looked up resident: room first, then one sweep."""
        cdef int32_t missing = n - self.resident
        self.fill(keys, n, missing, self.leading_fit(n, missing))
        if debug_build:
            self.check()
        return 0

    @cython.final
    cdef int fill(self, const uint64_t* keys, int32_t n, int32_t missing, int32_t fits) except -1 nogil:
        """Store those of the ``missing`` blocks that are among the leading ``fits``, and sweep."""
        self.fits = fits
        self.view.blocks = n
        self.view.asked = keys
        self.view.slots = self.slots
        if self.limited and self.policy.one_by_one and (missing > 0 or self.policy.drops):
            self.sweep_one_by_one(keys, n, fits)
            return 0
        if missing > 0:
            if not self.limited:
                self.fit_slots(self.used + missing)
            elif missing > self.limit - self.used:
                self.make_room(keys, n, fits)
            self.store_missing(keys, n, fits)
        if self.limited:
            self.sweep_over(n)
        return 0

    @cython.final
    cdef int32_t leading_fit(self, int32_t n, int32_t missing) noexcept nogil:
        """How many leading blocks of the request can be resident at once, beside what is pinned. A
        tier that makes no room at allocation has what is free to give."""
        cdef int32_t room = self.limit - (self.pinned if self.makes_room else self.used)
        cdef int32_t fits
        if missing <= self.limit - self.used or (self.makes_room and n <= room):
            return n
        for fits in range(n):
            if self.slots[fits] >= 0:
                if not self.makes_room or self.refs[self.slots[fits]] > 1:
                    continue  # its own place is not among those that are given
            elif not wants(self.mask, fits):
                continue
            if room == 0:
                return fits
            room -= 1
        return n

    @cython.final
    cdef int make_room(self, const uint64_t* keys, int32_t n, int32_t fits) except -1 nogil:
        """Evict for the leading ``fits`` blocks of the request, sparing its own.

        A request larger than the tier keeps its leading blocks: what lies beyond them is not
        spared, so that LRU stays a stack algorithm at any capacity.
        """
        cdef int32_t* slots = self.slots
        cdef int32_t i, missing = 0
        for i in range(fits):
            if slots[i] >= 0:
                self.refs[slots[i]] += 1
            elif wants(self.mask, i):
                missing += 1
        try:
            if missing > self.limit - self.used:
                self.evict(missing - (self.limit - self.used), self.sweep)
        finally:
            for i in range(fits):
                if slots[i] >= 0:
                    self.refs[slots[i]] -= 1
        for i in range(fits, n):
            if slots[i] >= 0 and not self.holds(slots[i], keys[i]):
                slots[i] = ABSENT
        return 0

    @cython.final
    cdef int sweep_one_by_one(self, const uint64_t* keys, int32_t n, int32_t fits) except -1 nogil:
        """The sweep for policies that choose a victim for each missing block by itself. The
        request's own blocks are spared just the same (only a policy that inserts first may give
        up those it has just been given)."""
        cdef int32_t* slots = self.slots
        cdef int32_t first = n - 1 if self.order == TAIL_FIRST else 0
        cdef int32_t step = -1 if self.order == TAIL_FIRST else 1
        cdef int32_t i, k, parent
        for i in range(fits):
            if slots[i] >= 0:
                self.refs[slots[i]] += 1
        self.view.slots = NULL
        try:
            for k in range(n):
                i = first + k * step
                parent = self.decoded(i - 1) if i > 0 else ABSENT
                self.view.parent = parent if parent >= 0 and self.holds(parent, keys[i - 1]) else -1
                if slots[i] >= 0:
                    if touches(self.mask, i) and (i < fits or self.holds(slots[i], keys[i])):
                        self.tell_one(slots[i], i, step, False)
                elif not wants(self.mask, i):
                    continue
                elif i < fits:
                    self.store_one(keys, i, step)
                    if slots[i] <= STORED_NOW and not self.holds(self.decoded(i), keys[i]):
                        slots[i] = ABSENT  # the policy has dropped it again
                    if slots[i] <= STORED_NOW and not self.policy.insert_first:
                        self.refs[STORED_NOW - slots[i]] += 1
                else:
                    self.truncated += 1
        finally:
            self.view.stirs += 1
            for i in range(fits):
                if slots[i] >= 0:
                    self.refs[slots[i]] -= 1
                elif slots[i] <= STORED_NOW and not self.policy.insert_first:
                    self.refs[STORED_NOW - slots[i]] -= 1
        return 0

    @cython.final
    cdef int32_t decoded(self, int32_t i) noexcept nogil:
        cdef int32_t slot = self.slots[i]
        return STORED_NOW - slot if slot <= STORED_NOW else slot

    @cython.final
    cdef int store_missing(self, const uint64_t* keys, int32_t n, int32_t fits) except -1 nogil:
        """Give a slot to each missing block that fits, parents first: the order in which
        listeners of the event log want to hear of them."""
        cdef int32_t* slots = self.slots
        cdef int32_t i, slot
        for i in range(fits):
            if slots[i] < 0 and wants(self.mask, i):
                slot = self.take_slot(keys[i])
                self.sweep[self.stored] = slot
                slots[i] = STORED_NOW - slot
                self.stored += 1
                if self.noted:
                    self.note_stored(keys, i, slot)
        self.table.insert_slots(self.sweep, self.stored)
        for i in range(fits, n):
            self.truncated += slots[i] < 0 and wants(self.mask, i)
        return 0

    cdef int note_stored(self, const uint64_t* keys, int32_t i, int32_t slot) except -1 nogil:
        """Block i of the request was given a slot; called where ``noted``."""
        if self.log is not None:
            self.record(INSERT, COMPUTED, keys[i], i > 0, keys[i - 1] if i > 0 else 0)
        return 0

    @cython.final
    cdef int sweep_over(self, int32_t n) except -1 nogil:
        """Tell the policy of the whole request in sweep order, one call for each run of touched
        or stored blocks; a request whose missing blocks are its last ones makes two runs."""
        cdef const int32_t* slots = self.slots
        cdef int32_t* sweep = self.sweep
        cdef int32_t first = n - 1 if self.order == TAIL_FIRST else 0
        cdef int32_t step = -1 if self.order == TAIL_FIRST else 1
        cdef int32_t k, slot, filled = 0
        cdef bint stored = False
        self.view.slots = slots
        self.view.step = step
        for k in range(n):
            slot = slots[first + k * step]
            if STORED_NOW < slot < 0 or (slot >= 0 and not touches(self.mask, first + k * step)):
                # A block that is not told of ends a run: positions within a run are consecutive.
                self.tell(sweep, filled, stored)
                filled = 0
                continue
            if (slot < 0) != stored:
                self.tell(sweep, filled, stored)
                filled = 0
                stored = not stored
            if filled == 0:
                self.view.depth = first + k * step
            sweep[filled] = STORED_NOW - slot if stored else slot
            filled += 1
        return self.tell(sweep, filled, stored)

    @cython.final
    cdef int tell(self, const int32_t* run, int32_t n, bint stored) except -1 nogil:
        if n == 0:
            return 0
        return self.policy.insert_slots(run, n) if stored else self.policy.touch_slots(run, n)

    @cython.final
    cdef int tell_one(self, int32_t slot, int32_t depth, int32_t step, bint stored) except -1 nogil:
        """Tell the policy of one block, and take away what it then wants to be rid of."""
        self.view.depth = depth
        self.view.step = step
        if stored:
            self.policy.insert_slots(&slot, 1)
        else:
            self.view.stirs += 1
            self.policy.touch_slots(&slot, 1)
        if self.policy.drops:
            self.drop_unwanted()
        return 0

    @cython.final
    cdef int drop_unwanted(self) except -1 nogil:
        cdef int32_t slot
        while True:
            slot = self.policy.drop_slot()
            if slot == -1:
                return 0
            self.take_victims(&slot, 1)

    @cython.final
    cdef int32_t access(self, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil:
        """Look up, insert and evict block by block; returns the prefix hit in blocks.

        Afterwards ``slots`` is negative where a block missed. Keys of a request are distinct, so a
        block found absent at the start stays so until its turn; a block found resident may be
        evicted by an earlier one of the same request, which is why its slot is looked at again.
        """
        cdef int32_t i, slot, state, prefix = -1
        if n > self.scratch:
            self.fit_scratch(n)
        self.stored = self.evicted = self.truncated = 0
        self.view.blocks = n
        self.view.asked = keys
        self.view.slots = NULL
        self.view.parent = -1
        if self.limited and self.policy.expires:
            self.drop_unwanted()
        self.resident = <int32_t>self.table.find_many(keys, n, readable, self.slots)
        for i in range(n):
            slot = self.slots[i]
            if slot >= 0 and self.evicted > 0 and not self.holds(slot, keys[i]):
                self.slots[i] = slot = ABSENT_EVICTED
                self.resident -= 1
            if slot >= 0:
                if self.limited:
                    self.tell_one(slot, i, 1, False)
                self.view.parent = slot
                continue
            if prefix < 0:
                prefix = i
            state = slot
            self.store_one(keys, i, 1)
            self.view.parent = self.decoded(i) if self.slots[i] <= STORED_NOW else -1
            self.slots[i] = state
        if debug_build:
            self.check()
        return n if prefix < 0 else prefix

    @cython.final
    cdef int store_one(self, const uint64_t* keys, int32_t i, int32_t step) except -1 nogil:
        """Store block i of a request by itself, evicting one block if the tier is full."""
        cdef int32_t victim, slot = -1
        cdef bint after = self.limited and self.policy.insert_first
        if not self.limited:
            self.fit_slots(self.used + 1)
        elif self.used == self.limit and not (after and self.makes_room):
            if self.pinned == self.limit or not self.makes_room:
                self.truncated += 1
                return 0
            self.view.incoming = keys[i]
            self.view.depth = i
            self.view.step = step
            slot = self.replace_victim(keys[i])
        if slot < 0:
            slot = self.take_slot(keys[i])
        self.table.insert(keys[i], slot)
        self.slots[i] = STORED_NOW - slot
        self.stored += 1
        if self.noted:
            self.note_stored(keys, i, slot)
        if self.limited:
            self.tell_one(slot, i, step, True)
        if after and self.used > self.limit:
            self.evict(1, &victim)
            if not self.holds(slot, keys[i]):
                self.slots[i] = ABSENT_EVICTED
        return 0

    @cython.final
    cdef int32_t replace_victim(self, uint64_t key) except? -2 nogil:
        """Evict one block for ``key``. In a full tier that nobody listens to, its slot is the one that
        would be taken next: it is handed over at once, which spares a sixth of a miss. Else -1."""
        cdef int32_t victim, found
        if self.noted or self.free_count > 0:
            self.evict(1, &victim)
            return -1
        found = self.policy.evict_slots(1, &victim)
        if found != 1 or not 0 <= victim < self.size or self.refs[victim] != 1:
            self.take_victims(&victim, found)
            return self.too_few(found, 1)
        self.table.remove(self.keys[victim])
        self.keys[victim] = key
        self.evicted += 1
        return victim

    @cython.final
    cdef int fit_scratch(self, int64_t n) except -1 nogil:
        """Grow the arrays that hold one request. An eviction may need as many entries as the
        request has blocks, so both have the same length."""
        cdef int64_t wanted = max(n, 2 * self.scratch)
        cdef int32_t* slots = <int32_t*>realloc(self.slots, wanted * sizeof(int32_t))
        cdef int32_t* sweep
        if slots == NULL:
            no_memory("request", wanted)
        self.slots = slots
        sweep = <int32_t*>realloc(self.sweep, wanted * sizeof(int32_t))
        if sweep == NULL:
            no_memory("request", wanted)
        self.sweep = sweep
        self.scratch = wanted
        return 0

    # -- from Python ---------------------------------------------------------------------------

    def serve(self, const uint64_t[::1] keys):
        """Serve one request; returns its prefix hit in blocks. Keys must be distinct."""
        cdef int32_t n = <int32_t>keys.shape[0]
        cdef const uint64_t* first = &keys[0] if n else NULL
        cdef int32_t prefix
        self.reserve(first, n)
        if self.order == ACCESS:
            return self.access(first, n, n)
        prefix = self.lookup(first, n, n)
        self.commit(first, n)
        return prefix

    @property
    def last(self):
        """Counts of the request served last: resident, stored, evicted, truncated blocks."""
        return {
            "resident": self.resident, "stored": self.stored,
            "evicted": self.evicted, "truncated": self.truncated,
        }
