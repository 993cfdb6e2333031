"""A stack of tiers as one worker sees it, second part: which tier is to store what of a request.

Each tier decides by its own write mode, promotion and admission filter; the plan is a mask and an
origin for each chunk of each store, and says afterwards what became of a block that no tier took.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t
from libc.string cimport memset

from kvbench.cache.frame cimport FAILED, FETCH_ONLY, NO_LEVEL, NO_ROOM, PUT, REFUSED, Level, Place
from kvbench.cache.lookup cimport StackLookup
from kvbench.cache.seen cimport TRUNCATED
from kvbench.cache.stacked cimport (
    COPY_UP, DUPLICATE_CHUNKS, FAILED_PUTS, FAULTY, MOVE_UP, NOT_ADMITTED, ON_HIT, ON_REQUEST,
    REFUSED_ADMISSION_CHUNKS, REFUSED_FAULT_CHUNKS, REFUSED_ROOM_CHUNKS, THROUGH, StackedTier,
)
from kvbench.cache.tier cimport STORE, TOUCH
from kvbench.eviction.view cimport STORED_NOW


cdef class StackPlan(StackLookup):
    """Adds the plan of a request that was looked up."""

    cdef int plan(self, StackedTier tier, Place* place, int32_t t) except -1 nogil:
        """Which chunks this store takes (mask) and where they come from (origin)."""
        cdef Level* level = &self.level[t]
        cdef int32_t m = level.multiple
        cdef int32_t j, last, source
        cdef int32_t first = self.skip // m
        cdef int32_t stop = self.hit // m if self.mode == FETCH_ONLY else level.chunks
        cdef int32_t known
        cdef bint duplicates = tier.write == THROUGH and not tier.partial and not (
            tier.admission is not None and tier.admission.asks_presence
        )
        place.offers = False
        place.wanted = 0
        level.first = first = min(first, level.chunks)
        level.stop = stop
        place.settled = stop - first == tier.resident == level.chunks and tier.touch_on == ON_REQUEST and not (
            tier.partial and (self.has_partial or self.hit < level.chunks)
        )
        if place.settled:
            if duplicates:
                place.counts[DUPLICATE_CHUNKS] += level.chunks - self.hit // m
            return 0
        known = first
        if tier.touch_on == ON_REQUEST and tier.spares:
            # Most of a request is a prefix that is here, of which nothing else needs to be known.
            while known < self.hit // m and tier.slots[known] >= 0:
                known += 1
        memset(place.mask, 0, first)
        memset(place.mask + first, TOUCH, known - first)
        memset(place.origin, NO_LEVEL, known)
        if stop < level.chunks:
            memset(place.mask + stop, 0, level.chunks - stop)
            memset(place.origin + stop, NO_LEVEL, level.chunks - stop)
        for j in range(known, stop):
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
                place.mask[j] = STORE if tier.write == THROUGH and not level.closed else 0
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

    cdef int plan_spill(self) except -1 nogil:
        """Computed blocks that no tier has go, from the first on, into the first tier with room; a tier
        that the next block does not fit is left for good. The last one may make room."""
        cdef int32_t m = self.level[0].multiple
        cdef int32_t j, t = 0
        cdef int32_t taken = 0
        cdef PyObject* tier
        for j in range(max(self.hit, self.skip) // m, self.level[0].chunks):
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
            if self.level[t].places[0].settled:
                continue
            tier = self.level[t].places[0].tier
            self.admit(<StackedTier>tier, &self.level[t].places[0], &self.level[t], t)
        return 0

    cdef bint has_room(self, StackedTier tier, int32_t t, int32_t taken) noexcept nogil:
        if tier.unhealthy or self.level[t].closed:
            return False
        if not tier.limited or (t == self.levels - 1 and tier.makes_room):
            return True
        return taken < tier.limit - tier.used

    cdef int32_t below_of(self, int32_t t, int32_t j) noexcept nogil:
        """The fastest tier below that has a chunk, or -1."""
        cdef int32_t s
        cdef PyObject* below
        for s in range(t + 1, self.levels):
            below = self.level[s].places[0].tier
            if j < self.level[s].chunks and (<StackedTier>below).slots[j] >= 0:
                return s
        return NO_LEVEL

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
                if self.frozen or self.level[t].places[r].settled:
                    continue
                if self.level[t].places[r].mask[j] & STORE and j < (<StackedTier>tier).fits:
                    return 0  # its policy turned it away at once, which is an eviction
                reasons |= self.level[t].places[r].mask[j]
        if reasons & (STORE | NO_ROOM):
            return TRUNCATED
        return FAULTY if reasons & FAILED else NOT_ADMITTED
