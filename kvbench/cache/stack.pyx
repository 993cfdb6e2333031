"""A stack of tiers as one worker sees it: one request looked up in all of them, and stored.

Two calls serve a request, as for a single tier. ``lookup`` finds each block's fastest tier and the
prefix that all tiers together hold (:mod:`kvbench.cache.lookup`). ``commit`` then goes from the
fastest tier down: what each is to store is planned (:mod:`kvbench.cache.plan`), room is made for it,
and the request is swept over. Tiers may belong to several stacks; they are one store then, with one
index, one capacity and one account.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from kvbench.cache.copies cimport nobodys_key
from kvbench.cache.frame cimport FETCH_ONLY, NO_LEVEL, NO_ROOM, SERVE, STORE_ONLY, Level, Place
from kvbench.cache.plan cimport StackPlan
from kvbench.cache.stacked cimport (
    BACK, COPY_UP, EVICTED_IN_TURN, MOVE_UP, REFUSED_FROZEN_CHUNKS, REFUSED_ROOM_CHUNKS, STAGED_CHUNKS,
    TEMPORARY, THROUGH, WRITE_OPERATIONS, WRITTEN_CHUNKS, StackedTier,
)
from kvbench.cache.table cimport ABSENT
from kvbench.cache.tier cimport STORE
from kvbench.checks cimport debug_build
from kvbench.eviction.view cimport STORED_NOW


cdef inline bint pinned_for(StackedTier tier) noexcept nogil:
    # Whether a request's blocks are pinned in a tier while those above make room: only where what they
    # give up can come down. (Two passes over all blocks of all lower tiers were a fifth of the time.)
    return tier.limited and tier.spares and tier.write == BACK


@cython.final
cdef class TierStack(StackPlan):
    """``tiers`` has for each level, fastest first, the stores of its ranks.

    ``walk``        ``any``: each block from the fastest tier that has it; ``once``: each tier in turn
                    takes what it has from where the one before stopped.
    ``spill``       computed blocks go to the first tier with room.
    ``retries``     how often a failing get or put is tried again.
    ``fault_seed``  of the draws that say which operations fail.
    """

    cdef int commit(self) except -1 nogil:
        """Make the request that was just looked up resident wherever it is to be."""
        cdef int32_t t, r
        cdef Level* level
        cdef PyObject* tier
        cdef bint offers = self.spill or self.always_pins
        if self.levels == 0:
            return 0
        if self.frozen:
            level = &self.level[0]
            if self.mode != FETCH_ONLY:
                level.places[0].counts[REFUSED_FROZEN_CHUNKS] += level.chunks - self.hit // level.multiple
            return 0
        memcpy(self.lies_in, self.credit, self.hit)
        for t in range(self.levels):
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                self.plan(<StackedTier>tier, &self.level[t].places[r], t)
                offers = offers or self.level[t].places[r].offers
        if self.spill and self.mode != FETCH_ONLY:
            self.plan_spill()
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

    cdef int store(self, StackedTier tier, Place* place, Level* level, int32_t t, int32_t r) except -1 nogil:
        """Bring one store up to date: sources first, then room, then the sweep."""
        cdef int32_t j, s, fits, staged, missing = 0
        cdef int32_t evicted = tier.evicted
        cdef const uint64_t* keys = level.keys
        if tier.received:
            # Blocks came down into it since it was looked at.
            tier.lookup(level.keys, level.chunks, level.chunks)
            tier.evicted = evicted
        tier.mask = NULL if place.settled else place.mask
        tier.origin = place.origin
        for s in range(self.levels):
            self.sources[s] = self.level[s].places[r if self.level[s].ranks > 1 else 0].tier
        tier.sources = self.sources
        if place.offers and self.any_moves:
            self.follow_moves(tier, place, level)
        if tier.promotion == TEMPORARY and t < self.levels - 1:
            staged = self.staged_chunks(t, level.chunks)
            self.free_beside(tier, level.chunks, staged)
            place.counts[STAGED_CHUNKS] += staged
            place.counts[WRITTEN_CHUNKS] += staged
        if tier.received or self.spill or self.any_moves or tier.admission is not None or tier.put_fails:
            for j in range(level.chunks if place.offers or self.spill else 0):
                missing += (place.mask[j] & STORE) != 0 and tier.slots[j] < 0
        else:
            missing = place.wanted
        # (On the clock a request holds its private blocks itself, see kvbench.serving.holdings.)
        if tier.partial and not self.timed and self.mode == SERVE and (self.has_partial or self.hit < level.chunks):
            missing = self.hold_extra(tier, place, level, missing)
            keys = self.names
            tier.originals = level.keys
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
            tier.fill(keys, level.chunks, missing, fits)
            if fits < level.chunks:
                place.counts[REFUSED_ROOM_CHUNKS] += tier.truncated
        place.counts[WRITE_OPERATIONS] += tier.stored > 0
        tier.mask = NULL
        tier.origin = NULL
        tier.originals = NULL
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

    cdef int free_beside(self, StackedTier tier, int32_t own, int32_t chunks) except -1 nogil:
        """Room for so many chunks, at the expense of all but the leading ``own`` ones of the request; less
        where blocks that came down meanwhile leave less."""
        cdef int32_t j, slot
        cdef int32_t room = tier.limit - tier.pinned
        if not tier.limited or chunks <= tier.limit - tier.used:
            return 0
        for j in range(own):
            slot = tier.slots[j]
            if slot >= 0:
                room -= tier.refs[slot] == 1
                tier.refs[slot] += 1
        try:
            tier.free_room(min(chunks, room))
        finally:
            tier.view.stirs += 1
            for j in range(own):
                if tier.slots[j] >= 0:
                    tier.refs[tier.slots[j]] -= 1
        return 0

    cdef int32_t hold_extra(self, StackedTier tier, Place* place, Level* level, int32_t missing) except -1 nogil:
        """Room for what the request holds only while it is served, too: a partial last block, and copies
        of the resident blocks behind the hit, which it computes again; their old copies are victims
        like any other. Returns how many blocks are missing then; ``names`` has the keys to store."""
        cdef int32_t j, again = 0
        cdef int32_t room = tier.limit - tier.pinned
        memcpy(self.names, level.keys, level.chunks * sizeof(uint64_t))
        if not tier.limited or not tier.makes_room:
            return missing
        for j in range(level.chunks):
            room -= j < self.hit and tier.slots[j] >= 0 and tier.refs[tier.slots[j]] == 1
            again += j >= self.hit and tier.slots[j] >= 0
        self.free_beside(tier, self.hit, min(missing + again + self.has_partial, room))
        missing += self.add_copies(tier, place, level)
        if self.has_partial and tier.partial == EVICTED_IN_TURN and tier.used < tier.limit:
            tier.add_nameless(level.chunks)
        return missing

    cdef int32_t add_copies(self, StackedTier tier, Place* place, Level* level) noexcept nogil:
        """Have each resident block behind the hit stored again, as a copy if the old one is still there;
        returns how many these are."""
        cdef int32_t j, added = 0
        for j in range(self.hit, level.chunks):
            if tier.slots[j] < 0:
                continue
            if tier.table.find(level.keys[j]) >= 0:
                self.names[j] = nobodys_key(self.request.index, j)
            tier.slots[j] = ABSENT
            place.mask[j] = STORE
            place.origin[j] = NO_LEVEL
            added += 1
        return added

    cdef int store_batch(self, StackedTier tier, Place* place, Level* level) except -1 nogil:
        """Room for every chunk that this tier did not deliver, resident or not, at the expense of any
        block that is not pinned; then the missing ones are stored, the first ones if not all fit (LMCache)."""
        cdef int32_t j, room, wanted = 0, missing = 0
        room = level.chunks
        if tier.limited:
            room = tier.limit - (tier.pinned if tier.makes_room else tier.used)
        for j in range(level.first, level.stop):
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
        for j in range(level.first, level.stop):
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

    def serve(self, const uint64_t[::1] keys, *, int64_t request=0, int64_t time_ns=0, limit=None,
              bint partial=False):
        """Serve one request of distinct keys; returns its prefix hit in blocks.

        At most ``limit`` leading blocks may hit: what follows them is computed again. ``partial``: a
        partial block follows the last one.
        """
        cdef int32_t n = <int32_t>keys.shape[0]
        cdef const uint64_t* first = &keys[0] if n else NULL
        cdef int32_t hit
        self.request.index = request
        self.request.time_ns = time_ns
        self.reserve(first, n)
        self.has_partial = partial
        self.next_use = NULL
        hit = self.lookup(first, n, n if limit is None else min(<int>limit, n), n)
        self.commit()
        return hit

    def store_only(self, const uint64_t[::1] keys, *, int32_t skip=0, int64_t request=0, int64_t time_ns=0):
        """Store a request of distinct keys, all of whose blocks were computed, but leave its first ``skip``
        blocks alone; returns the positions of those that are new to some tier."""
        self.do_one(STORE_ONLY, keys, skip, 0, request, time_ns)
        return self.new_blocks(skip, <int32_t>keys.shape[0])

    def fetch_only(self, const uint64_t[::1] keys, *, int32_t skip=0, limit=None, int64_t request=0,
                   int64_t time_ns=0):
        """Fetch what the tiers have of a request from block ``skip`` to before block ``limit``; returns up to
        which block they delivered it. What is missing is not stored."""
        self.do_one(FETCH_ONLY, keys, skip, len(keys) if limit is None else limit, request, time_ns)
        return self.hit

    cdef int do_one(self, int mode, const uint64_t[::1] keys, int32_t skip, int32_t asked, int64_t request,
                    int64_t time_ns) except -1:
        """Look a request up and commit it in one of the modes other than SERVE."""
        cdef int32_t n = <int32_t>keys.shape[0]
        cdef const uint64_t* first = &keys[0] if n else NULL
        self.request.index = request
        self.request.time_ns = time_ns
        self.reserve(first, n)
        self.mode = mode
        self.skip = min(skip, n)
        try:
            self.lookup(first, n, min(asked, n), n)
            return self.commit()
        finally:
            self.mode = SERVE
            self.skip = 0

    cdef list new_blocks(self, int32_t skip, int32_t n):
        cdef int32_t i, t, j
        cdef PyObject* tier
        found = []
        for i in range(skip, n):
            for t in range(self.levels):
                j = i // self.level[t].multiple
                tier = self.level[t].places[0].tier
                if j < self.level[t].chunks and (<StackedTier>tier).slots[j] <= STORED_NOW:
                    found.append(i)
                    break
        return found
