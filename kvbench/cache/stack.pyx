"""A stack of tiers as one worker sees it: one request looked up in all of them, and stored.

Two calls serve a request, as for a single tier. ``lookup`` finds each block's fastest tier and the
prefix that all tiers together hold (semantics §4). ``commit`` then goes from the fastest tier down:
what each is to store is decided by its own write mode and promotion, room is made for it, and the
request is swept over. Tiers may belong to several stacks; they are one store then, with one
index, one capacity and one account.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from kvbench.cache.seen cimport TRUNCATED
from kvbench.cache.stacked cimport (
    BACK,    DUPLICATE_CHUNKS, EVICTED_IN_TURN, FAILED_GETS, FAILED_PUTS, FAULTY, HIT_BLOCKS, LOOKUP_OPERATIONS, LOST_BLOCKS, MOVE_UP,
    COPY_UP, NOT_ADMITTED, ON_HIT, ON_LOOKUP, ON_REQUEST, OVERLAP_BLOCKS, PROMOTED_USED_CHUNKS, READ_CHUNKS,
    READ_OPERATIONS, REFUSED_ADMISSION_CHUNKS, REFUSED_FAULT_CHUNKS, REFUSED_FROZEN_CHUNKS, REFUSED_ROOM_CHUNKS,
    RETRIES, STAGED_CHUNKS, TEMPORARY, THROUGH, WRITE_OPERATIONS, WRITTEN_CHUNKS, StackedTier,
)
from kvbench.cache.table cimport ABSENT
from kvbench.cache.tier cimport STORE, TOUCH
from kvbench.checks cimport debug_build
from kvbench.eviction.view cimport STORED_NOW
from kvbench.hashing cimport mix64
from kvbench.memory cimport no_memory

from kvbench.errors import ConfigError

cdef enum:
    GET = 0
    PUT = 1
    NO_LEVEL = -1

cdef uint64_t ALWAYS = 0xffffffffffffffffULL


cdef inline bint pinned_for(StackedTier tier) noexcept nogil:
    # Whether a request's blocks are pinned in a tier while those above make room: only where what they
    # give up can come down. (Two passes over all blocks of all lower tiers were a fifth of the time.)
    return tier.limited and tier.spares and tier.write == BACK


@cython.final
cdef class TierStack:
    """``tiers`` has for each level, fastest first, the stores of its ranks.

    ``walk``        ``any``: each block from the fastest tier that has it; ``once``: each tier in turn
                    takes what it has from where the one before stopped.
    ``spill``       computed blocks go to the first tier with room.
    ``retries``     how often a failing get or put is tried again.
    ``fault_seed``  of the draws that say which operations fail.
    """

    def __cinit__(self, list tiers, *, int32_t worker=0, str walk="any", bint spill=False, int retries=0,
                  uint64_t fault_seed=0):
        cdef int32_t t, r
        cdef Place* place
        self.worker = worker
        self.tiers = tiers
        self.levels = len(tiers)
        self.once = walk == "once"
        self.spill = spill
        self.retries = retries
        self.fault_seed = fault_seed
        self.level = <Level*>calloc(max(self.levels, 1), sizeof(Level))
        self.sources = <PyObject**>calloc(max(self.levels, 1), sizeof(PyObject*))
        if self.level == NULL or self.sources == NULL:
            raise MemoryError("tier stack: no memory")
        for t in range(self.levels):
            self.level[t].ranks = len(tiers[t])
            self.level[t].places = <Place*>calloc(self.level[t].ranks, sizeof(Place))
            if self.level[t].places == NULL:
                raise MemoryError("tier stack: no memory")
            for r in range(self.level[t].ranks):
                place = &self.level[t].places[r]
                place.tier = <PyObject*>(<StackedTier?>tiers[t][r])
                place.counts = (<StackedTier>tiers[t][r]).counts
            self.level[t].multiple = (<StackedTier>tiers[t][0]).multiple
            place = &self.level[t].places[0]
            self.any_moves = self.any_moves or (<StackedTier>tiers[t][0]).promotion == MOVE_UP
            self.always_pins = self.always_pins or (<StackedTier>tiers[t][0]).high or (
                (<StackedTier>tiers[t][0]).promotion == TEMPORARY and t < self.levels - 1
            )

    def __dealloc__(self):
        cdef int32_t t, r
        for t in range(self.levels if self.level != NULL else 0):
            for r in range(self.level[t].ranks):
                free(self.level[t].places[r].mask)
                free(self.level[t].places[r].origin)
            free(self.level[t].places)
            free(self.level[t].gathered)
            free(self.level[t].common)
        free(self.level)
        free(self.sources)
        free(self.lies_in)
        free(self.credit)
        free(self.found)
        free(self.admitted)
        free(self.offered)
        free(self.offered_at)

    cdef int fit(self, int64_t n) except -1 nogil:
        """Grow the arrays that hold one request."""
        cdef int32_t t, r
        cdef Level* level
        cdef Place* place
        if n <= self.room:
            return 0
        n = max(n, 2 * self.room)
        self.credit = <int8_t*>realloc(self.credit, n)
        self.lies_in = <int8_t*>realloc(self.lies_in, n)
        self.found = <int32_t*>realloc(self.found, n * sizeof(int32_t))
        self.admitted = <uint8_t*>realloc(self.admitted, n)
        self.offered = <uint64_t*>realloc(self.offered, n * sizeof(uint64_t))
        self.offered_at = <int32_t*>realloc(self.offered_at, n * sizeof(int32_t))
        if self.credit == NULL or self.found == NULL or self.admitted == NULL or self.offered == NULL or (
            self.offered_at == NULL or self.lies_in == NULL
        ):
            no_memory("request", n)
        for t in range(self.levels):
            level = &self.level[t]
            if level.multiple > 1:
                level.gathered = <uint64_t*>realloc(level.gathered, n * sizeof(uint64_t))
                if level.gathered == NULL:
                    no_memory("request", n)
            if level.ranks > 1:
                level.common = <int32_t*>realloc(level.common, n * sizeof(int32_t))
                if level.common == NULL:
                    no_memory("request", n)
            for r in range(level.ranks):
                place = &level.places[r]
                place.mask = <uint8_t*>realloc(place.mask, n)
                place.origin = <int8_t*>realloc(place.origin, n)
                if place.mask == NULL or place.origin == NULL:
                    no_memory("request", n)
        self.room = n
        return 0

    # -- lookup --------------------------------------------------------------------------------

    cdef int32_t lookup(self, const uint64_t* keys, int32_t n, int32_t asked, int64_t readable) except -1 nogil:
        """Find all blocks of a request in all tiers; returns how many of the ``asked`` ones hit."""
        cdef int32_t t, r
        cdef PyObject* tier
        self.fit(n)
        self.stored = self.evicted = self.truncated = self.overlap = self.lost = self.refused = 0
        for t in range(self.levels):
            self.look_at(t, keys, n, readable)
        if self.once:
            self.assign_once(n, 0)
        else:
            self.assign(n, 0)
        if self.hit > asked:
            self.hit = asked
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
        if level.ranks > 1:
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
        """A chunk counts only if every rank has it."""
        cdef Level* level = &self.level[t]
        cdef int32_t r, j
        cdef PyObject* tier = level.places[0].tier
        for j in range(level.chunks):
            level.common[j] = (<StackedTier>tier).slots[j]
        for r in range(1, level.ranks):
            tier = level.places[r].tier
            for j in range(level.chunks):
                if (<StackedTier>tier).slots[j] < 0:
                    level.common[j] = ABSENT
        level.here = level.common

    cdef bint serves(self, int32_t t, int32_t i) noexcept nogil:
        cdef int32_t j = i // self.level[t].multiple
        return j < self.level[t].chunks and self.level[t].here[j] >= 0

    cdef void assign(self, int32_t n, int32_t skip) noexcept nogil:
        """Credit each block of the prefix, from ``skip`` on, to the fastest tier that has it."""
        cdef int32_t i = skip
        cdef int32_t t
        cdef const int32_t* here
        memset(self.credit, NO_LEVEL, skip)
        if self.levels and self.level[0].multiple == 1:
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

    cdef void note_found(self, int32_t n) noexcept nogil:
        """Where each block is resident at all; and how many are."""
        cdef int32_t i, t
        self.resident = self.hit
        for i in range(self.hit, n):
            self.credit[i] = NO_LEVEL
            self.found[i] = ABSENT
            for t in range(self.levels):
                if self.serves(t, i):
                    self.found[i] = 0
                    self.resident += 1
                    break

    cdef int fetch(self) except -1 nogil:
        """Let gets fail; the first failure, over all tiers, cuts the prefix, and what was claimed
        behind it is given back."""
        cdef int32_t i = 0
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

    cdef void stage(self, StackedTier tier, int32_t t) noexcept nogil:
        """What passes through this tier needs room there; the prefix ends where there is none."""
        cdef int32_t m = self.level[t].multiple
        cdef int32_t i, chunk, last = -1
        cdef int32_t room = tier.limit - (tier.pinned if tier.makes_room else tier.used)
        if not tier.limited:
            return
        for i in range(self.level[t].chunks if tier.makes_room else 0):
            room -= tier.slots[i] >= 0 and tier.refs[tier.slots[i]] == 1  # its own blocks stay
        for i in range(self.hit):
            chunk = i // m
            if self.credit[i] > t and chunk != last:
                if room <= 0:
                    tier.counts[REFUSED_ROOM_CHUNKS] += 1
                    self.hit = i
                    return
                room -= 1
                last = chunk

    cdef void count_reads(self) noexcept nogil:
        """What each tier delivered; chunks of a slower tier may overlap what a faster one gave."""
        cdef int32_t i = 0
        cdef int32_t end, t, m, j, slot
        cdef Place* place
        cdef PyObject* tier
        for t in range(self.levels):
            self.level[t].delivered = 0
        while i < self.hit:
            t = self.credit[i]
            end = i + 1
            while end < self.hit and self.credit[end] == t:
                end += 1
            m = self.level[t].multiple
            place = &self.level[t].places[0]
            place.counts[HIT_BLOCKS] += end - i
            self.level[t].delivered += end - i
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

    # -- commit --------------------------------------------------------------------------------

    cdef int commit(self, const uint64_t* keys, int32_t n) except -1 nogil:
        """Make the request that was just looked up resident wherever it is to be."""
        cdef int32_t t, r
        cdef Level* level
        cdef PyObject* tier
        cdef bint offers = self.spill or self.always_pins
        if self.levels == 0:
            return 0
        if self.frozen:
            self.level[0].places[0].counts[REFUSED_FROZEN_CHUNKS] += self.level[0].chunks - self.hit // self.level[0].multiple
            return 0
        memcpy(self.lies_in, self.credit, self.hit)
        for t in range(self.levels):
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                self.plan(<StackedTier>tier, &self.level[t].places[r], t)
                offers = offers or self.level[t].places[r].offers
        if self.spill:
            self.plan_spill(n)
        # What a tier makes room for may push blocks down; those of this request stay where they are.
        for t in range(1, self.levels if offers else 0):
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                self.pin(<StackedTier>tier, self.level[t].chunks, 1)
        for t in range(self.levels):
            level = &self.level[t]
            for r in range(level.ranks):
                tier = level.places[r].tier
                if t > 0 and offers:
                    self.pin(<StackedTier>tier, level.chunks, -1)
                if not (<StackedTier>tier).unhealthy:
                    self.store(<StackedTier>tier, &level.places[r], level, t, r)
        return self.finish()

    cdef void pin(self, StackedTier tier, int32_t chunks, int32_t by) noexcept nogil:
        cdef int32_t j, slot
        if not pinned_for(tier):
            return
        tier.view.stirs += by < 0
        for j in range(chunks):
            slot = tier.slots[j]
            if slot >= 0:
                tier.pinned -= tier.refs[slot] > 1
                tier.refs[slot] += by
                tier.pinned += tier.refs[slot] > 1

    cdef int plan(self, StackedTier tier, Place* place, int32_t t) except -1 nogil:
        """Which chunks this store takes (mask) and where they come from (origin)."""
        cdef Level* level = &self.level[t]
        cdef int32_t m = level.multiple
        cdef int32_t j, first, last, source
        cdef bint duplicates = tier.write == THROUGH and not (tier.admission is not None and tier.admission.asks_presence)
        place.offers = False
        place.wanted = 0
        place.whole = tier.resident == level.chunks and tier.touch_on == ON_REQUEST and not (tier.partial and self.extra)
        if place.whole:
            if duplicates:
                place.counts[DUPLICATE_CHUNKS] += level.chunks - self.hit // m
            return 0
        first = 0
        if tier.touch_on == ON_REQUEST and tier.spares:
            # Most of a request is a prefix that is here, of which nothing else needs to be known.
            while first < self.hit // m and tier.slots[first] >= 0:
                first += 1
            memset(place.mask, TOUCH, first)
            memset(place.origin, NO_LEVEL, first)
        for j in range(first, level.chunks):
            last = (j + 1) * m - 1
            source = self.credit[last] if last < self.hit else NO_LEVEL
            place.mask[j] = 0
            place.origin[j] = <int8_t>source
            if tier.slots[j] >= 0:
                if tier.touch_on == ON_REQUEST or (tier.touch_on == ON_HIT and self.delivered_by(t, j)):
                    place.mask[j] = TOUCH
                place.counts[DUPLICATE_CHUNKS] += source == NO_LEVEL and duplicates
                continue
            if source == NO_LEVEL:
                place.mask[j] = STORE if tier.write == THROUGH else 0
                if tier.promotion == MOVE_UP and place.mask[j]:
                    # Computed again although a tier below has it: that copy moves, and stays the only one.
                    source = self.below_of(t, j)
                    place.origin[j] = <int8_t>(-2 - source) if source >= 0 else NO_LEVEL
            elif source == t:
                place.mask[j] = STORE  # other ranks have it, and this one must
                place.origin[j] = NO_LEVEL
            elif source > t and tier.promotion == COPY_UP:
                place.mask[j] = STORE
            elif source > t and tier.promotion == MOVE_UP:
                place.mask[j] = STORE
                place.origin[j] = <int8_t>(-2 - source)
            place.wanted += place.mask[j] & STORE
        place.offers = place.wanted > 0
        if place.offers and (tier.admission is not None or tier.put_fails or tier.unhealthy):
            self.admit(tier, place, level, t)
        return 0

    cdef int admit(self, StackedTier tier, Place* place, Level* level, int32_t t) except -1 nogil:
        """Ask the tier's admission filter, and let puts fail."""
        cdef int32_t j, k, n = 0
        if tier.admission is not None:
            for j in range(level.chunks):
                if place.mask[j] & STORE:
                    self.offered[n] = level.keys[j]
                    self.offered_at[n] = j
                    n += 1
            tier.admission.admit_keys(self.offered, n, self.admitted)
            for k in range(n):
                if not self.admitted[k]:
                    place.mask[self.offered_at[k]] = REFUSED
                    place.counts[REFUSED_ADMISSION_CHUNKS] += 1
                    self.refused += 1
        if tier.put_fails or tier.unhealthy:
            self.fail_puts(tier, place, level, t)
        return 0

    cdef int fail_puts(self, StackedTier tier, Place* place, Level* level, int32_t t) noexcept nogil:
        cdef int32_t j
        for j in range(level.chunks):
            if not place.mask[j] & STORE:
                continue
            if not tier.unhealthy:
                if not self.fails(level.keys[j], t, PUT, tier.put_fails):
                    continue
                place.counts[FAILED_PUTS] += 1
            place.mask[j] = FAILED
            place.counts[REFUSED_FAULT_CHUNKS] += 1
        return 0

    cdef int plan_spill(self, int32_t n) except -1 nogil:
        """Computed blocks that no tier has go, from the first on, into the first tier with room; a tier
        that the next block does not fit is left for good. The last one may make room."""
        cdef int32_t m = self.level[0].multiple
        cdef int32_t j, t = 0
        cdef int32_t taken = 0
        cdef PyObject* tier
        for j in range(self.hit // m, self.level[0].chunks):
            if self.found[(j + 1) * m - 1] >= 0:
                continue
            while t < self.levels:
                tier = self.level[t].places[0].tier
                if self.has_room(<StackedTier>tier, t, taken):
                    break
                t += 1
                taken = 0
            if t == self.levels:
                self.level[t - 1].places[0].counts[REFUSED_ROOM_CHUNKS] += 1
                self.level[t - 1].places[0].mask[j] |= NO_ROOM
                continue
            self.level[t].places[0].mask[j] = STORE
            taken += 1
        for t in range(self.levels):
            if self.level[t].places[0].whole:
                continue
            tier = self.level[t].places[0].tier
            self.admit(<StackedTier>tier, &self.level[t].places[0], &self.level[t], t)
        return 0

    cdef bint has_room(self, StackedTier tier, int32_t t, int32_t taken) noexcept nogil:
        if tier.unhealthy:
            return False
        if not tier.limited or (t == self.levels - 1 and tier.makes_room):
            return True
        return taken < tier.limit - tier.used

    cdef int store(self, StackedTier tier, Place* place, Level* level, int32_t t, int32_t r) except -1 nogil:
        """Bring one store up to date: sources first, then room, then the sweep."""
        cdef int32_t j, s, fits, staged, missing = 0
        cdef int32_t evicted = tier.evicted
        if tier.received:
            # Blocks came down into it since it was looked at.
            tier.lookup(level.keys, level.chunks, level.chunks)
            tier.evicted = evicted
        tier.mask = NULL if place.whole else place.mask
        tier.origin = place.origin
        for s in range(self.levels):
            self.sources[s] = self.level[s].places[r if self.level[s].ranks > 1 else 0].tier
        tier.sources = self.sources
        if place.offers and self.any_moves:
            self.follow_moves(tier, place, level)
        if tier.promotion == TEMPORARY and t < self.levels - 1:
            staged = self.staged_chunks(t)
            self.make_way(tier, level, staged)
            place.counts[STAGED_CHUNKS] += staged
            place.counts[WRITTEN_CHUNKS] += staged
        if tier.received or self.spill or self.any_moves or tier.admission is not None or tier.put_fails:
            for j in range(level.chunks if place.offers or self.spill else 0):
                missing += (place.mask[j] & STORE) != 0 and tier.slots[j] < 0
        else:
            missing = place.wanted
        if tier.partial and self.extra:
            missing = self.hold_extra(tier, place, level, missing)
        if missing and not tier.spares:
            self.store_batch(tier, place, level)
        else:
            fits = tier.leading_fit(level.chunks, missing)
            if tier.whole and fits < level.chunks:
                for j in range(level.chunks):
                    if place.mask[j] & STORE:
                        place.mask[j] = NO_ROOM
                place.counts[REFUSED_ROOM_CHUNKS] += missing
                tier.truncated += missing
                missing = 0
                fits = level.chunks
            if t < self.levels - 1 and tier.promotion == MOVE_UP:
                self.take_sources(tier, place, r, fits)
            tier.fill(level.keys, level.chunks, missing, fits)
            if fits < level.chunks:
                place.counts[REFUSED_ROOM_CHUNKS] += tier.truncated
        place.counts[WRITE_OPERATIONS] += tier.stored > 0
        tier.mask = NULL
        tier.origin = NULL
        if tier.high:
            tier.keep_below_watermark(self.request.time_ns)
        return 0

    cdef void follow_moves(self, StackedTier tier, Place* place, Level* level) noexcept nogil:
        """What a faster tier has drawn up meanwhile comes from there now, and does not move again."""
        cdef int32_t j, now
        for j in range(min(level.chunks, self.hit // level.multiple)):
            if not place.mask[j] & STORE:
                continue
            now = self.lies_in[(j + 1) * level.multiple - 1]
            if now < tier.level and place.origin[j] <= -2:
                place.mask[j] = 0
            elif now < tier.level and place.origin[j] >= 0:
                place.origin[j] = <int8_t>now

    cdef int make_way(self, StackedTier tier, Level* level, int32_t staged) except -1 nogil:
        """Room for what passes through, at the expense of others' blocks; it is free again afterwards."""
        cdef int32_t j
        if not tier.limited or staged <= tier.limit - tier.used:
            return 0
        for j in range(level.chunks):
            if tier.slots[j] >= 0:
                tier.refs[tier.slots[j]] += 1
        try:
            tier.free_room(staged)
        finally:
            tier.view.stirs += 1
            for j in range(level.chunks):
                if tier.slots[j] >= 0:
                    tier.refs[tier.slots[j]] -= 1
        return 0

    cdef int32_t below_of(self, int32_t t, int32_t j) noexcept nogil:
        """The fastest tier below that has a chunk, or -1."""
        cdef int32_t s
        cdef PyObject* below
        for s in range(t + 1, self.levels):
            below = self.level[s].places[0].tier
            if j < self.level[s].chunks and (<StackedTier>below).slots[j] >= 0:
                return s
        return NO_LEVEL

    cdef int32_t hold_extra(self, StackedTier tier, Place* place, Level* level, int32_t missing) except -1 nogil:
        """Room for what the request holds only while it is served, too: a partial last block, and a full
        one that is computed again, whose old copy is a victim like any other. Returns how many
        blocks are missing then."""
        cdef int32_t j
        cdef int32_t pinned = tier.pinned
        if not tier.limited or not tier.makes_room:
            return missing
        for j in range(self.hit):
            if tier.slots[j] >= 0:
                pinned += tier.refs[tier.slots[j]] == 1
                tier.refs[tier.slots[j]] += 1
        try:
            tier.free_room(min(missing + self.extra, tier.limit - pinned))
        finally:
            tier.view.stirs += 1
            for j in range(self.hit):
                if tier.slots[j] >= 0:
                    tier.refs[tier.slots[j]] -= 1
        for j in range(self.hit, level.chunks):
            if tier.slots[j] >= 0 and not tier.holds(tier.slots[j], level.keys[j]):
                tier.slots[j] = ABSENT
                place.mask[j] = STORE
                place.origin[j] = NO_LEVEL
                missing += 1
        if self.has_partial and tier.partial == EVICTED_IN_TURN and tier.used < tier.limit:
            tier.add_nameless(level.chunks)
        return missing

    cdef int32_t staged_chunks(self, int32_t t) noexcept nogil:
        cdef int32_t m = self.level[t].multiple
        cdef int32_t i, chunk, last = -1, staged = 0
        for i in range(self.hit):
            chunk = i // m
            if self.credit[i] > t and chunk != last:
                staged += 1
                last = chunk
        return staged

    cdef int store_batch(self, StackedTier tier, Place* place, Level* level) except -1 nogil:
        """Room for every chunk that this tier did not deliver, resident or not, at the expense of any
        block that is not pinned; then the missing ones are stored, the first ones if not all fit (LMCache)."""
        cdef int32_t j, room, wanted = 0, missing = 0
        room = level.chunks
        if tier.limited:
            room = tier.limit - (tier.pinned if tier.makes_room else tier.used)
        for j in range(level.chunks):
            if tier.slots[j] >= 0 and place.origin[j] == tier.level:
                continue
            if not place.mask[j] & STORE and tier.slots[j] < 0:
                continue
            if wanted < room:
                wanted += 1
                continue
            if tier.slots[j] >= 0:
                place.mask[j] |= NO_ROOM
                continue
            place.mask[j] = NO_ROOM
            tier.truncated += 1
            place.counts[REFUSED_ROOM_CHUNKS] += 1
        if tier.makes_room:
            tier.free_room(wanted)
        for j in range(level.chunks):
            if tier.slots[j] >= 0 and not tier.holds(tier.slots[j], level.keys[j]):
                tier.slots[j] = ABSENT
                if place.mask[j] & NO_ROOM:
                    continue
                if place.origin[j] == NO_LEVEL and tier.write == THROUGH:
                    place.mask[j] = STORE
                elif place.origin[j] > tier.level and tier.promotion == COPY_UP:
                    place.mask[j] = STORE
            missing += (place.mask[j] & STORE) != 0 and tier.slots[j] < 0
        tier.fill(level.keys, level.chunks, missing, level.chunks)
        return 0

    cdef int take_sources(self, StackedTier tier, Place* place, int32_t r, int32_t fits) except -1 nogil:
        """Empty the places below of what moves up here. What somebody else holds on to is copied."""
        cdef int32_t j, s
        cdef PyObject* below
        for j in range(fits):
            if place.origin[j] > -2 or not place.mask[j] & STORE or tier.slots[j] >= 0:
                continue
            s = -2 - place.origin[j]
            below = self.level[s].places[r if self.level[s].ranks > 1 else 0].tier
            if self.take_source(<StackedTier>below, j, self.level[s].keys[j]):
                if (j + 1) * self.level[s].multiple <= self.hit:
                    self.lies_in[(j + 1) * self.level[s].multiple - 1] = <int8_t>tier.level
            else:
                place.origin[j] = <int8_t>s if (j + 1) * self.level[s].multiple <= self.hit else NO_LEVEL
        return 0

    cdef bint take_source(self, StackedTier below, int32_t j, uint64_t key) except -1 nogil:
        cdef int32_t slot = below.slots[j]
        cdef int32_t ours = 2 if pinned_for(below) else 1
        if slot < 0 or not below.holds(slot, key) or below.refs[slot] > ours:
            return False
        below.pinned -= below.refs[slot] > 1
        below.take_out(slot)
        below.slots[j] = ABSENT
        return True

    cdef int finish(self) except -1 nogil:
        """Sums over all tiers, in blocks."""
        cdef int32_t t, r
        cdef PyObject* tier
        for t in range(self.levels):
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                self.stored += (<StackedTier>tier).stored * self.level[t].multiple
                self.evicted += (<StackedTier>tier).evicted * self.level[t].multiple
                if debug_build:
                    (<StackedTier>tier).check()
        return 0

    cdef int outcome(self, int32_t i) noexcept nogil:
        """0 if block i of the request is in some tier now, else the Seen state that says why not."""
        cdef int32_t t, r, j, slot
        cdef int reasons = FAILED if self.frozen else 0
        cdef PyObject* tier
        for t in range(self.levels):
            j = i // self.level[t].multiple
            if j >= self.level[t].chunks:
                continue
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                slot = (<StackedTier>tier).slots[j]
                if slot >= 0 or slot <= STORED_NOW:
                    return 0
                if self.frozen or self.level[t].places[r].whole:
                    continue
                if self.level[t].places[r].mask[j] & STORE and j < (<StackedTier>tier).fits:
                    return 0  # its policy turned it away at once, which is an eviction
                reasons |= self.level[t].places[r].mask[j]
        if reasons & (STORE | NO_ROOM):
            return TRUNCATED
        return FAULTY if reasons & FAILED else NOT_ADMITTED

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

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        cdef int32_t t, r
        cdef PyObject* tier
        for t in range(self.levels):
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                (<StackedTier>tier).reserve(keys, n)
        return 0

    # -- from Python ---------------------------------------------------------------------------

    def freeze(self, bint frozen=True):
        """Frozen, a worker stores nothing and reads from its fastest tier only."""
        self.frozen = frozen

    def expect_faults(self, bint faulty=True):
        """Whether any tier's gets may fail from now on."""
        self.faulty = faulty

    def probe(self, const uint64_t[::1] keys, *, int32_t skip=0):
        """The prefix hit of these keys in blocks, over all tiers; changes nothing but the count of
        lookups (semantics §4.3). The first ``skip`` blocks are known already and not looked for.
        ``last_credit`` then says which tier would deliver each of the others; -1: none has to."""
        cdef int32_t n = <int32_t>keys.shape[0]
        cdef const uint64_t* first = &keys[0] if n else NULL
        cdef int32_t t
        self.reserve(first, n)
        self.fit(n)
        for t in range(self.levels):
            self.look_at(t, first, n, n)
        if self.once:
            self.assign_once(n, min(skip, n))
        else:
            self.assign(n, min(skip, n))
        return self.hit

    def touch(self, const uint64_t[::1] keys):
        """``probe``, and what each tier would deliver becomes its most recent, the first block last."""
        cdef int32_t t, r
        self.probe(keys)
        for t in range(self.levels):
            for r in range(self.level[t].ranks):
                if self.tiers[t][r].capacity is not None:
                    self.touch_hits(self.tiers[t][r], t)
        return self.hit

    def serve(self, const uint64_t[::1] keys, *, int64_t request=0, int64_t time_ns=0):
        """Serve one request of distinct keys; returns its prefix hit in blocks."""
        cdef int32_t n = <int32_t>keys.shape[0]
        cdef const uint64_t* first = &keys[0] if n else NULL
        cdef int32_t t, hit
        self.request.index = request
        self.request.time_ns = time_ns
        self.reserve(first, n)
        self.extra = self.has_partial = False
        self.next_use = NULL
        hit = self.lookup(first, n, n, n)
        self.commit(first, n)
        return hit

    @property
    def last_credit(self):
        """For each block of the request served last the level that delivered it; -1: none."""
        return [self.credit[i] for i in range(self.hit)]
