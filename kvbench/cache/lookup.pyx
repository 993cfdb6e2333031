"""A stack of tiers as one worker sees it, first part: one request looked up in all of them (semantics §4).

``lookup`` finds each block's fastest tier and the prefix that all tiers together hold. Gets may fail,
and what passes through a tier may find no room there; either cuts the prefix.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kvbench.cache.frame cimport GET, NO_LEVEL, Level, Place, StackFrame
from kvbench.cache.stacked cimport (
    FAILED_GETS, HIT_BLOCKS, LOOKUP_OPERATIONS, LOST_BLOCKS, ON_LOOKUP, OVERLAP_BLOCKS, PROMOTED_USED_CHUNKS,
    READ_CHUNKS, READ_OPERATIONS, REFUSED_ROOM_CHUNKS, RETRIES, TEMPORARY, StackedTier,
)
from kvbench.cache.table cimport ABSENT
from kvbench.hashing cimport mix64

cdef uint64_t ALWAYS = 0xffffffffffffffffULL


cdef class StackLookup(StackFrame):
    """Adds the lookup of a request."""

    # -- lookup --------------------------------------------------------------------------------

    cdef int32_t lookup(self, const uint64_t* keys, int32_t n, int32_t asked, int64_t readable) except -1 nogil:
        """Find all blocks of a request in all tiers; returns how many of the ``asked`` ones hit."""
        cdef int32_t t, r
        cdef PyObject* tier
        self.stored = self.evicted = self.overlap = self.lost = 0
        self.find(keys, n, self.skip, readable)
        self.hit = min(self.hit, asked)
        if self.faulty:
            self.fetch()
        for t in range(self.levels - 1):
            tier = self.level[t].places[0].tier
            if (<StackedTier>tier).promotion == TEMPORARY:
                self.stage(<StackedTier>tier, t)
        self.note_found(n)
        self.count_reads()
        for t in range(self.levels if not self.frozen else 0):
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                if (<StackedTier>tier).touch_on == ON_LOOKUP and (<StackedTier>tier).limited:
                    self.touch_hits(<StackedTier>tier, t)
        return self.hit

    cdef int find(self, const uint64_t* keys, int32_t n, int32_t skip, int64_t readable) except -1 nogil:
        """Look at all tiers, and credit the prefix from block ``skip`` on to those that have it."""
        cdef int32_t t
        self.fit(n)
        for t in range(self.levels):
            self.look_at(t, keys, n, readable)
        if self.once:
            self.assign_once(n, skip)
        else:
            self.assign(n, skip)
        return 0

    cdef int look_at(self, int32_t t, const uint64_t* keys, int32_t n, int64_t readable) except -1 nogil:
        """One tier's slots of the request, in all ranks."""
        cdef Level* level = &self.level[t]
        cdef int32_t m = level.multiple
        cdef int32_t r, j
        cdef PyObject* tier
        level.chunks = n // m
        level.keys = keys
        if m > 1:
            for j in range(level.chunks):
                level.gathered[j] = keys[(j + 1) * m - 1]
            level.keys = level.gathered
        for r in range(level.ranks):
            tier = level.places[r].tier
            self.ask(<StackedTier>tier, t, readable if m == 1 else level.chunks)
        tier = level.places[0].tier
        level.here = (<StackedTier>tier).slots
        if level.ranks > 1 or self.timed:
            self.join_ranks(t)
        return 0

    cdef int ask(self, StackedTier tier, int32_t t, int64_t readable) except -1 nogil:
        tier.view.request = self.request
        tier.view.next_use = self.next_use if self.level[t].multiple == 1 else NULL
        tier.worker = self.worker
        tier.received = False
        tier.mask = NULL
        if tier.unhealthy or (self.frozen and t > 0):
            return self.blank(tier, self.level[t].chunks)
        tier.lookup(self.level[t].keys, self.level[t].chunks, readable)
        tier.counts[LOOKUP_OPERATIONS] += 1
        return 0

    cdef int blank(self, StackedTier tier, int32_t n) except -1 nogil:
        """A tier that cannot be asked holds nothing."""
        cdef int32_t j
        if n > tier.scratch:
            tier.fit_scratch(n)
        tier.stored = tier.evicted = tier.truncated = tier.resident = 0
        for j in range(n):
            tier.slots[j] = ABSENT
        return 0

    cdef void join_ranks(self, int32_t t) noexcept nogil:
        """A chunk counts only if every rank has it, and not while it is under way."""
        cdef Level* level = &self.level[t]
        cdef int32_t r, j
        cdef PyObject* tier = level.places[0].tier
        memcpy(level.common, (<StackedTier>tier).slots, level.chunks * sizeof(int32_t))
        for r in range(1, level.ranks):
            tier = level.places[r].tier
            for j in range(level.chunks):
                if (<StackedTier>tier).slots[j] < 0:
                    level.common[j] = ABSENT
        for r in range(level.ranks):
            tier = level.places[r].tier
            if (<StackedTier>tier).pending:
                self.pass_by_pending(<StackedTier>tier, level)
        level.here = level.common

    cdef void pass_by_pending(self, StackedTier tier, Level* level) noexcept nogil:
        cdef int32_t j
        for j in range(level.chunks):
            if tier.slots[j] >= 0 and tier.flights[tier.slots[j]].pending:
                level.common[j] = ABSENT

    cdef bint is_pending(self, int32_t i) noexcept nogil:
        """Whether a block is under way to some tier."""
        cdef int32_t t, j
        cdef PyObject* tier
        for t in range(self.levels):
            j = i // self.level[t].multiple
            tier = self.level[t].places[0].tier
            if j < self.level[t].chunks and (<StackedTier>tier).slots[j] >= 0 and self.level[t].here[j] < 0:
                return True
        return False

    @cython.final
    cdef bint has(self, int32_t t, int32_t i) noexcept nogil:
        cdef int32_t j = i // self.level[t].multiple
        return j < self.level[t].chunks and self.level[t].here[j] >= 0

    @cython.final
    cdef bint serves(self, int32_t t, int32_t i) noexcept nogil:
        return self.has(t, i) and not self.level[t].hidden

    @cython.final
    cdef void assign(self, int32_t n, int32_t skip) noexcept nogil:
        """Credit each block of the prefix, from ``skip`` on, to the fastest tier that has it."""
        cdef int32_t i = skip
        cdef int32_t t
        cdef const int32_t* here
        memset(self.credit, NO_LEVEL, skip)
        if self.levels and self.level[0].multiple == 1 and not self.level[0].hidden:
            # Most hits are the fastest tier's.
            here = self.level[0].here
            while i < n and here[i] >= 0:
                i += 1
            memset(self.credit + skip, 0, i - skip)
        while i < n:
            t = 0
            while t < self.levels and not self.serves(t, i):
                t += 1
            if t == self.levels:
                break
            self.credit[i] = <int8_t>t
            i += 1
        self.hit = i

    @cython.final
    cdef void assign_once(self, int32_t n, int32_t skip) noexcept nogil:
        """Each tier is visited once, in order, and takes its longest run from there."""
        cdef int32_t i = skip
        cdef int32_t t
        memset(self.credit, NO_LEVEL, skip)
        for t in range(self.levels):
            while i < n and self.serves(t, i):
                self.credit[i] = <int8_t>t
                i += 1
        self.hit = i

    @cython.final
    cdef void note_found(self, int32_t n) noexcept nogil:
        """Where each block is resident at all; and how many are."""
        cdef int32_t i, t
        self.resident = self.hit
        for i in range(self.hit, n):
            self.credit[i] = NO_LEVEL
            self.found[i] = ABSENT
            for t in range(self.levels):
                if self.has(t, i):
                    self.found[i] = 0
                    self.resident += 1
                    break

    cdef int32_t behind(self, int32_t n) noexcept nogil:
        """Blocks of the prefix that the tiers behind the fastest one hold by themselves."""
        cdef int32_t t, i = 0
        while i < n:
            t = 1
            while t < self.levels and not self.serves(t, i):
                t += 1
            if t >= self.levels:
                break
            i += 1
        return i

    # -- faults --------------------------------------------------------------------------------

    cdef int fetch(self) except -1 nogil:
        """Let gets fail; the first failure, over all tiers, cuts the prefix, and what was claimed
        behind it is given back."""
        cdef int32_t i = self.skip
        cdef int32_t t, j, claimed = self.hit
        cdef PyObject* tier
        while i < self.hit:
            t = self.credit[i]
            j = i // self.level[t].multiple
            tier = self.level[t].places[0].tier
            if (<StackedTier>tier).get_fails and self.fails(self.level[t].keys[j], t, GET, (<StackedTier>tier).get_fails):
                self.level[t].places[0].counts[FAILED_GETS] += 1
                self.hit = i
                self.lose(t, j)
                break
            i += 1
        for i in range(self.hit, claimed):
            self.level[self.credit[i]].places[0].counts[LOST_BLOCKS] += 1
        self.lost = claimed - self.hit
        return 0

    cdef bint fails(self, uint64_t key, int32_t t, int32_t salt, uint64_t share) noexcept nogil:
        """Whether an operation fails, all its retries included. Drawn from the request and the key, so
        that the answer depends on nothing else that happened."""
        cdef int attempt
        cdef uint64_t drawn
        for attempt in range(self.retries + 1):
            drawn = mix64(mix64(mix64(self.fault_seed ^ key) + <uint64_t>self.request.index) + 64 * t + 2 * attempt + salt)
            if drawn >= share and share != ALWAYS:
                return False
            self.level[t].places[0].counts[RETRIES] += attempt < self.retries
        return True

    cdef int lose(self, int32_t t, int32_t j) except -1 nogil:
        """What cannot be read is taken out of the tier, so that it is stored again."""
        cdef int32_t r
        cdef PyObject* tier
        for r in range(self.level[t].ranks):
            tier = self.level[t].places[r].tier
            self.lose_at(<StackedTier>tier, j)
        if self.level[t].ranks > 1:
            self.level[t].common[j] = ABSENT
        return 0

    cdef int lose_at(self, StackedTier tier, int32_t j) except -1 nogil:
        cdef int32_t slot = tier.slots[j]
        if slot >= 0 and tier.refs[slot] == 1:
            tier.drop_faulty(slot)
            tier.slots[j] = ABSENT
            tier.resident -= 1
        return 0

    cdef bint hides(self, const uint64_t* keys, int32_t i) noexcept nogil:
        """Whether a block is in a tier that a fault or a freeze keeps from being asked."""
        cdef int32_t t, last
        cdef PyObject* tier
        for t in range(self.levels):
            last = (i // self.level[t].multiple + 1) * self.level[t].multiple - 1
            tier = self.level[t].places[0].tier
            if last < self.level[t].chunks * self.level[t].multiple and ((<StackedTier>tier).unhealthy or (
                self.frozen and t > 0
            )) and self.hidden_in(<StackedTier>tier, keys[last]):
                return True
        return False

    cdef bint hidden_in(self, StackedTier tier, uint64_t key) noexcept nogil:
        return tier.table.find(key) >= 0

    # -- what was found ------------------------------------------------------------------------

    cdef void stage(self, StackedTier tier, int32_t t) noexcept nogil:
        """What passes through this tier needs room there; the prefix ends where there is none."""
        cdef int32_t j, claimed = self.hit
        cdef int32_t room = tier.limit - (tier.pinned if tier.makes_room else tier.used)
        if not tier.limited:
            return
        for j in range(self.level[t].chunks if tier.makes_room else 0):
            room -= tier.slots[j] >= 0 and tier.refs[tier.slots[j]] == 1  # its own blocks stay
        self.staged_chunks(t, room)
        tier.counts[REFUSED_ROOM_CHUNKS] += self.hit < claimed

    cdef int32_t staged_chunks(self, int32_t t, int32_t most) noexcept nogil:
        """Chunks of a tier that pass through it on their way up; the prefix ends where there are more than ``most``."""
        cdef int32_t m = self.level[t].multiple
        cdef int32_t i, last = -1, staged = 0
        for i in range(self.hit):
            if self.credit[i] <= t or i // m == last:
                continue
            if staged >= most:
                self.hit = i
                break
            staged += 1
            last = i // m
        return staged

    cdef void count_reads(self) noexcept nogil:
        """What each tier delivered; chunks of a slower tier may overlap what a faster one gave."""
        cdef int32_t i = self.skip
        cdef int32_t end, t, m, j, slot
        cdef Place* place
        cdef PyObject* tier
        for t in range(self.levels):
            self.level[t].delivered = self.level[t].read_chunks = self.level[t].reads = 0
        while i < self.hit:
            t = self.credit[i]
            end = i + 1
            while end < self.hit and self.credit[end] == t:
                end += 1
            m = self.level[t].multiple
            place = &self.level[t].places[0]
            place.counts[HIT_BLOCKS] += end - i if not self.again else 0
            self.level[t].delivered += end - i
            self.level[t].reads += 1
            self.level[t].read_chunks += (end - 1) // m - i // m + 1
            place.counts[READ_OPERATIONS] += 1
            place.counts[READ_CHUNKS] += (end - 1) // m - i // m + 1
            place.counts[OVERLAP_BLOCKS] += i % m
            self.overlap += i % m
            tier = place.tier
            if t < self.levels - 1:
                for j in range(i // m, (end - 1) // m + 1):
                    slot = (<StackedTier>tier).slots[j]
                    if slot >= 0 and (<StackedTier>tier).promoted[slot]:
                        (<StackedTier>tier).promoted[slot] = 0
                        place.counts[PROMOTED_USED_CHUNKS] += 1
            i = end

    cdef bint delivered_by(self, int32_t t, int32_t j) noexcept nogil:
        """Whether any block of a chunk came from this tier."""
        cdef int32_t m = self.level[t].multiple
        cdef int32_t i
        for i in range(j * m, min((j + 1) * m, self.hit)):
            if self.credit[i] == t:
                return True
        return False

    cdef int touch_hits(self, StackedTier tier, int32_t t) except -1 nogil:
        """Recency at lookup: what this tier delivers becomes the most recent, its head last."""
        cdef int32_t j
        tier.view.slots = NULL
        for j in range(self.level[t].chunks - 1, -1, -1):
            if tier.slots[j] >= 0 and self.delivered_by(t, j):
                tier.view.parent = tier.slots[j - 1] if j > 0 else -1
                tier.tell_one(tier.slots[j], j, -1, False)
        return 0

    # -- from Python ---------------------------------------------------------------------------

    def freeze(self, bint frozen=True):
        """Frozen, a worker stores nothing and reads from its fastest tier only."""
        self.frozen = frozen

    def restrict(self, *, hidden=(), closed=()):
        """From now on lookups pass by the levels in ``hidden``, and those in ``closed`` take no computed
        blocks; all others do again."""
        cdef int32_t t
        for t in range(self.levels):
            self.level[t].hidden = t in hidden
            self.level[t].closed = t in closed

    def expect_faults(self, bint faulty=True):
        """Whether any tier's gets may fail from now on."""
        self.faulty = faulty

    def probe(self, const uint64_t[::1] keys, *, int32_t skip=0, int64_t request=0, int64_t time_ns=0):
        """The prefix hit of these keys in blocks, over all tiers; changes nothing but the count of
        lookups (semantics §4.3). The first ``skip`` blocks are known already and not looked for.
        ``last_credit`` then says which tier would deliver each of the others; -1: none has to."""
        cdef int32_t n = <int32_t>keys.shape[0]
        cdef const uint64_t* first = &keys[0] if n else NULL
        self.request.index = request
        self.request.time_ns = time_ns
        self.reserve(first, n)
        self.find(first, n, min(skip, n), n)
        return self.hit

    def touch_found(self):
        """What the last probe found becomes the most recent in those tiers whose recency is that of
        lookups, the first block last."""
        cdef int32_t t, r
        for t in range(self.levels if not self.frozen else 0):
            for r in range(self.level[t].ranks):
                if (<StackedTier>self.tiers[t][r]).touch_on == ON_LOOKUP and self.tiers[t][r].capacity is not None:
                    self.touch_hits(self.tiers[t][r], t)

    @property
    def last_credit(self):
        """For each block of the request served last the level that delivered it; -1: none."""
        return [self.credit[i] for i in range(self.hit)]
