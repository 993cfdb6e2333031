"""The order loop over tier stacks: as :mod:`kvbench.replays.order`, with a row of tier counts beside
each row of counts."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from kvbench.cache.seen cimport NEVER, STORED, TRUNCATED
from kvbench.cache.stack cimport TierStack
from kvbench.cache.stacked cimport EVICTED_FROM, FAULTY, NOT_ADMITTED
from kvbench.replays.order cimport OrderReplay, Row

from kvbench.cache.fold import Fold


def tier_columns(levels):
    """Columns of a row of tier counts for a stack of ``levels`` tiers: hit blocks by the tier that
    delivered them, missing blocks by the tier that evicted them last, and blocks that missed because
    no tier had admitted them, because of a fault, blocks delivered twice (chunks of a slower tier
    overlap what a faster one gave), hits claimed and given back after a failing get, blocks of the prefix
    that the tiers behind the first hold by themselves; and in timed replay blocks that missed because they were
    under way, and those that were computed although a lower tier has them, which was sooner."""
    return [
        *(f"hit_{t}" for t in range(levels)), *(f"evicted_{t}" for t in range(levels)),
        "not_admitted", "fault", "overlap", "lost", "behind", "not_visible", "declined",
    ]


cdef class TieredReplay(OrderReplay):
    """One replay. ``places`` has the :class:`~kvbench.cache.TierStack` of each worker; other arguments
    as for :class:`OrderReplay`."""

    cdef check_places(self):
        for place in self.places:
            if not isinstance(place, TierStack):
                raise TypeError(f"{place!r} is no tier stack")
        self.levels = (<TierStack>self.places[0]).levels
        self.fold = Fold()

    def run_tiers(self, keys, offsets, cacheable, rows, int32_t[:, ::1] tier_rows, **columns):
        """Serve one batch, as ``run`` does, and fill ``tier_rows`` (requests × the columns of ``tier_columns``)."""
        if tier_rows.shape[0] != len(cacheable) or tier_rows.shape[1] != 2 * self.levels + OTHERS:
            raise ValueError("tier_rows do not belong to the requests and tiers")
        self.tier_rows = &tier_rows[0, 0] if tier_rows.shape[0] else NULL
        OrderReplay.run(self, keys, offsets, cacheable, rows, **columns)

    cdef int reserve_at(self, PyObject* place, const uint64_t* keys, int64_t n) except -1 nogil:
        return (<TierStack>place).reserve(keys, n)

    cdef int serve_at(self, PyObject* place, const uint64_t* keys, int32_t n, int32_t stored, int64_t readable,
                      Row* row, int64_t i, int64_t offset) except -1 nogil:
        cdef int32_t* counts = self.tier_rows + i * (2 * self.levels + OTHERS)
        memset(counts, 0, (2 * self.levels + OTHERS) * sizeof(int32_t))
        self.tell_facts(&(<TierStack>place).request, i)
        (<TierStack>place).next_use = self.next_use + offset if self.next_use != NULL else NULL
        row.hit_blocks = (<TierStack>place).lookup(keys, stored, self.limit_of(i, n), readable)
        (<TierStack>place).has_partial = self.partials != NULL and self.partials[i]
        self.count_tiers(<TierStack>place, n, counts)
        if row.hit_blocks < n:
            self.explain(keys, n, (<TierStack>place).found, row)
            if self.seen is not None:
                self.explain_tiers(keys, <TierStack>place, n, row, counts)
        row.resident_blocks = (<TierStack>place).resident
        if stored > n:
            row.resident_blocks -= self.note_outputs(keys, (<TierStack>place).found, n, stored)
        (<TierStack>place).commit()
        row.stored_blocks = (<TierStack>place).stored
        row.evicted_blocks = (<TierStack>place).evicted
        row.truncated_blocks = self.note_outcome(keys, stored, <TierStack>place)
        return 0

    cdef int check_events(self, int64_t first) except -1:
        """Semantics §7.1 in a debug build: the events fold to what every store holds, at every request.
        Large stores are compared by count only, which costs little."""
        self.fold.take(self.log.tobytes(first))
        for stack in self.places:
            for level in (<TierStack>stack).tiers:
                for tier in level:
                    held = self.fold.holdings.get((tier.level, tier.store), {})
                    told = tier.used - tier.unannounced  # events tell of what is under way when it has landed
                    assert len(held) == told, f"{tier.name}: {told} blocks, {len(held)} by its events"
                    if tier.used <= 512:
                        assert set(held) <= set(tier.residents()), f"{tier.name}: events do not fold to it"
        return 0

    cdef void count_tiers(self, TierStack stack, int32_t n, int32_t* counts) noexcept nogil:
        cdef int32_t t
        for t in range(self.levels):
            counts[t] = stack.level[t].delivered
        counts[2 * self.levels + OVERLAP_AT] = stack.overlap
        counts[2 * self.levels + LOST_AT] = stack.lost
        counts[2 * self.levels + BEHIND_AT] = stack.behind(n)

    cdef int explain_tiers(self, const uint64_t* keys, TierStack stack, int32_t n, Row* row,
                           int32_t* counts) except -1 nogil:
        """Split what ``explain`` took for evicted by what really became of it."""
        cdef int32_t i, state
        for i in range(row.hit_blocks, n):
            if stack.found[i] >= 0:
                continue
            state = self.states[i]
            if state == NEVER or (self.index is not None and self.index.held_elsewhere(keys[i], row.worker)):
                continue
            if stack.timed and stack.is_pending(i):
                counts[2 * self.levels + NOT_VISIBLE_AT] += 1
                if state == TRUNCATED:  # it was dropped, and is computed again after a preemption
                    row.miss_truncated_blocks -= 1
                else:
                    row.miss_evicted_blocks -= 1
            elif state == TRUNCATED:
                continue
            elif stack.hides(keys, i):
                counts[2 * self.levels + FAULT_AT] += 1
                row.miss_evicted_blocks -= 1
            elif state == STORED or state >= EVICTED_FROM:
                counts[self.levels + self.evicted_from(stack, i, n)] += 1
            elif state == NOT_ADMITTED:
                counts[2 * self.levels + NOT_ADMITTED_AT] += 1
                row.miss_evicted_blocks -= 1
            elif state == FAULTY:
                counts[2 * self.levels + FAULT_AT] += 1
                row.miss_evicted_blocks -= 1
        return 0

    cdef int32_t evicted_from(self, TierStack stack, int32_t i, int32_t n) noexcept nogil:
        """The tier that evicted a block last. Of a chunk only the last block says so; where even that is
        not asked for, it is the slowest tier's."""
        cdef int32_t level, at = i
        cdef int32_t reach = min(n, i + stack.level[self.levels - 1].multiple)
        while at < reach:
            level = self.states[at] - EVICTED_FROM
            if level >= 0 and at // stack.level[level].multiple == i // stack.level[level].multiple:
                return level
            at += 1
        return self.levels - 1

    cdef int32_t note_outcome(self, const uint64_t* keys, int32_t n, TierStack stack) except -1 nogil:
        """Remember what became of computed blocks that no tier took; returns how many found no room."""
        cdef int32_t i, truncated = 0
        cdef int outcome
        for i in range(stack.hit, n):
            outcome = stack.outcome(i)
            truncated += outcome == TRUNCATED
            if outcome != 0 and self.seen is not None:
                self.seen.set_state(keys[i], <unsigned char>outcome)
        return truncated

