"""A tier in a stack: what it is given from above and below, and what becomes of what it evicts.

A block leaves a tier in one operation with one event: MOVE to the tier below (``write = back``
there), MOVE up (promotion ``move``), or DELETE. Room is made before anything is stored.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.bits cimport highest_bit
from kvbench.cache.events cimport (
    CLEAR, COMPUTED, COPY, DELETE, DEMOTED, EVICTED, FAULT, INSERT, MOVE, NAMELESS, NO_EVENT, PROMOTED, RECOMPUTED, RESTART,
    WATERMARK, Event,
)
from kvbench.cache.copies cimport nobodys_key
from kvbench.cache.flights cimport BY_COMPUTING, BY_DEMOTION, BY_PROMOTION, FlightStore
from kvbench.cache.seen cimport TRUNCATED
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.prefetch cimport prefetch
from kvbench.memory cimport Int32Memory, no_memory

from kvbench.errors import ConfigError

cdef enum:
    AHEAD = 8  # victims are cold

WRITE_MODES = {"through": THROUGH, "back": BACK, "none": NO_WRITES, "spill": SPILL}
PROMOTIONS = {"copy": COPY_UP, "move": MOVE_UP, "none": NO_PROMOTION, "temporary": TEMPORARY}
PARTIALS = {"free": NO_ROOM_NEEDED, "first": REUSED_FIRST, "in-turn": EVICTED_IN_TURN}
TOUCHES = {"request": ON_REQUEST, "hit": ON_HIT, "lookup": ON_LOOKUP, "never": NEVER_TOUCHED}

TIER_COUNTS = (
    "hit_blocks", "overlap_blocks", "read_chunks", "read_operations", "written_chunks", "write_operations",
    "lookup_operations", "computed_chunks", "promoted_chunks", "promoted_used_chunks", "demoted_chunks",
    "staged_chunks", "moved_up_chunks", "moved_down_chunks", "evicted_room_chunks", "evicted_watermark_chunks",
    "dropped_faulty_chunks", "refused_admission_chunks", "refused_room_chunks", "refused_fault_chunks",
    "refused_frozen_chunks", "duplicate_chunks", "failed_gets", "failed_puts", "retries", "lost_blocks",
    "age_chunks", "age_sum_ns", "age_max_ns",
)
"""Names of a store's counters. ``hit_blocks`` are credited to this tier; ``overlap_blocks`` came
along in its chunks although an upper tier had delivered them. ``computed``, ``promoted`` and
``demoted`` chunks were stored because they were computed, hit below, or evicted above;
``staged`` ones were used and not kept. ``evicted_*`` left the tier, ``moved_down`` of them into
the tier below. ``refused_*`` were offered and not stored. ``lost_blocks`` were claimed as hits and given
back after a failing get. Ages are those of evicted chunks since they were stored here."""


cdef class StackedTier(FlightStore):
    """One store of a tier in a stack; other arguments as for :class:`Tier`.

    ``multiple``   blocks of a chunk; keys handed to the tier are those of whole chunks.
    ``write``      what it does with computed blocks: ``through``, ``back`` (it takes what the tier
                   above evicts), ``none``, or ``spill`` (the first tier with room takes them).
    ``promotion``  what it does with blocks that a tier below delivered: ``copy``, ``move``, ``none``,
                   or ``temporary`` (room is made, and given up again after the request).
    ``touch_on``   which blocks count as used: all of a ``request`` that are resident, those that
                   this tier delivered (``hit``), the same at ``lookup`` time, or ``never``.
    ``spares``     whether a request's own blocks are spared when room is made for it. If not, room is
                   made for all of its blocks beyond the hit, resident or not (LMCache).
    ``whole``      store all of a request's blocks or none, instead of the leading ones that fit.
    ``partial``    a request's partial last block needs no room (``free``), or is held while the request
                   runs, and then its place is the ``first`` to be used again, or kept until it is evicted
                   ``in-turn``. With either of these a block that is computed again is stored as a copy.
    ``high``, ``low``, ``ratio``, ``period_ns``
                   watermark in chunks: with ``high`` set nothing is evicted at allocation; after a
                   request, at most once in ``period_ns``, a tier that holds ``high`` chunks evicts down
                   to ``low``, or the share ``ratio`` of what it holds.
    """

    def __cinit__(self, EvictionPolicy policy=None, *, int32_t multiple=1, str write="through",
                  str promotion="copy", str touch_on="request", bint spares=True, bint whole=False, str partial="free",
                  int32_t high=0, int32_t low=0, double ratio=0.0, int64_t period_ns=0,
                  AdmissionFilter admission=None, Seen seen=None, **kwargs):
        self.multiple = multiple
        self.write = WRITE_MODES[write]
        self.promotion = PROMOTIONS[promotion]
        self.touch_on = TOUCHES[touch_on]
        self.spares = spares
        self.whole = whole
        self.partial = PARTIALS[partial]
        self.high = high
        self.low = low
        self.ratio = ratio
        self.period_ns = period_ns
        self.next_check_ns = -(<int64_t>1 << 62)
        self.admission = admission
        self.seen = seen
        self.noted = True
        if high:
            self.makes_room = False
        self.reason = EVICTED
        self.facts = <SlotFacts*>calloc(self.size, sizeof(SlotFacts))
        self.promoted = <uint8_t*>calloc(self.size, sizeof(uint8_t))
        self.counts = <int64_t*>calloc(COUNTERS, sizeof(int64_t))
        self.ages = <int64_t*>calloc(AGE_BUCKETS, sizeof(int64_t))
        if self.facts == NULL or self.promoted == NULL or self.counts == NULL or self.ages == NULL:
            no_memory("tier", self.size)

    def __dealloc__(self):
        free(self.facts)
        free(self.promoted)
        free(self.counts)
        free(self.ages)

    cdef move_slots(self, int64_t size):
        cdef uint8_t* promoted
        cdef SlotFacts* facts = <SlotFacts*>realloc(self.facts, size * sizeof(SlotFacts))
        if facts == NULL:
            no_memory("tier", size)
        self.facts = facts
        promoted = <uint8_t*>realloc(self.promoted, size * sizeof(uint8_t))
        if promoted == NULL:
            no_memory("tier", size)
        self.promoted = promoted
        FlightStore.move_slots(self, size)

    # -- in ------------------------------------------------------------------------------------

    cdef int note_stored(self, const uint64_t* keys, int32_t i, int32_t slot) except -1 nogil:
        cdef SlotFacts* facts = &self.facts[slot]
        cdef int source = self.origin[i] if self.origin != NULL else -1  # NULL: served without a stack
        cdef bint moved = source <= -2
        cdef int kind
        cdef Event* event
        if moved:
            source = -2 - source
        facts.has_parent = i > 0
        facts.parent = keys[i - 1] if i > 0 else 0
        facts.depth = i
        facts.stored_ns = self.view.request.time_ns
        self.promoted[slot] = source >= 0
        if self.flights != NULL:
            self.note_filled(slot, BY_PROMOTION if source >= 0 else BY_COMPUTING)
        if self.copy_facts != NULL and self.note_copy(keys, i, slot):
            self.counts[WRITTEN_CHUNKS] += 1
            self.counts[COMPUTED_CHUNKS] += 1
            if self.log is not None:
                self.record(INSERT, RECOMPUTED, keys[i], True, self.originals[i])
            return 0
        self.counts[WRITTEN_CHUNKS] += 1
        self.counts[PROMOTED_CHUNKS if source >= 0 else COMPUTED_CHUNKS] += 1
        if self.log is None:
            return 0
        if source < 0:
            self.record(INSERT, COMPUTED, keys[i], i > 0, facts.parent)
        else:
            # What came with a larger chunk, or has left its place since, is no copy of something there.
            kind = MOVE if moved else COPY if self.still_in(<StackedTier>self.sources[source], keys[i]) else INSERT
            event = self.record(kind, PROMOTED, keys[i], i > 0, facts.parent)
            event.source = <uint8_t>source
            event.source_store = (<StackedTier>self.sources[source]).store
        return 0

    cdef bint still_in(self, StackedTier source, uint64_t key) noexcept nogil:
        return source.table.find(key) >= 0

    cdef int receive(self, StackedTier above, int32_t slot) except -1 nogil:
        """Take over the block that ``above`` evicts from ``slot``, with one MOVE; returns whether it did."""
        cdef uint64_t key = above.keys[slot]
        cdef SlotFacts* from_facts = &above.facts[slot]
        cdef int32_t here, victim, parent
        cdef uint8_t admitted = 1
        cdef Event* event
        if self.table.find(key) >= 0:
            self.counts[DUPLICATE_CHUNKS] += 1
            return 0
        if self.unhealthy:
            self.counts[REFUSED_FAULT_CHUNKS] += 1
            return 0
        if self.admission is not None:
            self.admission.admit_keys(&key, 1, &admitted)
            if not admitted:
                self.counts[REFUSED_ADMISSION_CHUNKS] += 1
                return 0
        if not self.limited:
            self.fit_slots(self.used + 1)
        elif self.used == self.limit:
            if not self.makes_room or self.pinned == self.limit:
                self.counts[REFUSED_ROOM_CHUNKS] += 1
                return 0
            self.take_view(above)
            self.view.incoming = key
            self.worker = above.worker
            self.evict(1, &victim)
        here = self.take_slot(key)
        self.table.insert(key, here)
        self.facts[here] = from_facts[0]
        self.facts[here].stored_ns = above.view.request.time_ns
        self.promoted[here] = 0
        self.forget_copy(here)
        self.received = True
        if self.flights != NULL:
            self.note_filled(here, BY_DEMOTION)
        self.counts[DEMOTED_CHUNKS] += 1
        self.counts[WRITTEN_CHUNKS] += 1
        if self.limited:
            self.take_view(above)
            parent = self.table.find(from_facts.parent) if from_facts.has_parent else -1
            self.view.parent = parent if parent >= 0 else -1
            self.tell_one(here, from_facts.depth, -1, True)
        if self.log is not None:
            self.worker = above.worker
            event = self.record(MOVE, DEMOTED, key, from_facts.has_parent, from_facts.parent)
            event.source = <uint8_t>above.level
            event.source_store = above.store
        return 1

    cdef void take_view(self, StackedTier above) noexcept nogil:
        # The policy is told of a single block, of whose request only the facts are known.
        self.view.request = above.view.request
        self.view.slots = NULL
        self.view.next_use = NULL
        self.view.parent = -1

    cdef int add_nameless(self, int32_t depth) except -1 nogil:
        """Keep a partial block without identity, as the oldest of its request."""
        cdef uint64_t key = nobodys_key(self.view.request.index, depth)
        cdef int32_t slot
        if self.table.find(key) >= 0:
            return 0
        slot = self.take_slot(key)
        self.table.insert(key, slot)
        self.facts[slot].has_parent = False
        self.facts[slot].depth = 0
        self.promoted[slot] = 0
        self.facts[slot].stored_ns = self.view.request.time_ns
        self.forget_copy(slot)
        self.copy_facts[slot].nameless = 1
        if self.log is not None:
            self.record(INSERT, NAMELESS, key, False, 0)
        self.view.slots = NULL
        self.view.parent = -1
        if self.limited:
            self.tell_one(slot, depth, -1, True)
        return 0

    # -- out -----------------------------------------------------------------------------------

    cdef int give_up(self, const int32_t* victims, int32_t n) except -1 nogil:
        self.note_ages(victims, n)
        if self.flights != NULL:
            self.note_lost(victims, n)
        self.pass_on_names(victims, n)
        self.counts[EVICTED_WATERMARK_CHUNKS if self.reason == WATERMARK else EVICTED_ROOM_CHUNKS] += n
        if self.below is not None:
            return self.hand_down(victims, n)
        if self.seen is not None:
            self.seen.set_states(self.keys, victims, n, <uint8_t>(EVICTED_FROM + self.level))
        return self.release_slots(victims, n, self.reason)

    cdef int hand_down(self, const int32_t* victims, int32_t n) except -1 nogil:
        """Offer each victim to the tier below; what it does not take is deleted."""
        cdef int32_t i
        for i in range(n):
            if self.has_name(victims[i]) and self.below.receive(self, victims[i]):
                self.counts[MOVED_DOWN_CHUNKS] += 1
                self.release_slots(&victims[i], 1, NO_EVENT)
                continue
            if self.seen is not None:
                self.seen.set_state(self.keys[victims[i]], <uint8_t>(EVICTED_FROM + self.level))
            self.release_slots(&victims[i], 1, self.reason)
        return 0

    cdef void note_ages(self, const int32_t* victims, int32_t n) noexcept nogil:
        """Count how old blocks are that are evicted."""
        cdef int32_t i
        cdef int64_t age, total = 0, largest = self.counts[AGE_MAX_NS]
        for i in range(n):
            if i + AHEAD < n:
                prefetch(&self.facts[victims[i + AHEAD]])
            age = max(self.view.request.time_ns - self.facts[victims[i]].stored_ns, <int64_t>0)
            total += age
            largest = max(largest, age)
            self.ages[highest_bit(age | 1)] += 1
        self.counts[AGE_CHUNKS] += n
        self.counts[AGE_SUM_NS] += total
        self.counts[AGE_MAX_NS] = largest

    cdef int announce(self, int32_t slot) except -1 nogil:
        cdef SlotFacts* facts = &self.facts[slot]
        cdef Event* event
        if self.log is not None:
            event = self.record(INSERT, COMPUTED, self.keys[slot], facts.has_parent, facts.parent)
            event.request = self.flights[slot].request  # others have used the store since
        return 0

    cdef int note_dropped(self, int32_t slot) except -1 nogil:
        """A block that was never computed leaves its slot: whoever misses it next hears that there was no room."""
        if self.seen is not None:
            self.seen.set_state(self.keys[slot], TRUNCATED)
        return 0

    cdef int take_out(self, int32_t slot) except -1 nogil:
        """Empty a slot whose block moves up; the tier above records the MOVE."""
        if self.limited:
            self.policy.remove_slots(&slot, 1)
        self.refs[slot] = 0
        self.release_slots(&slot, 1, NO_EVENT)
        self.counts[MOVED_UP_CHUNKS] += 1
        return 0

    cdef int drop_faulty(self, int32_t slot) except -1 nogil:
        """Forget a block that could not be read."""
        if self.limited:
            self.policy.remove_slots(&slot, 1)
        self.refs[slot] = 0
        if self.seen is not None:
            self.seen.set_state(self.keys[slot], FAULTY)
        if self.flights != NULL:
            self.note_lost(&slot, 1)
        self.release_slots(&slot, 1, FAULT)
        self.counts[DROPPED_FAULTY_CHUNKS] += 1
        return 0

    cdef int free_room(self, int32_t chunks) except -1 nogil:
        """Evict until ``chunks`` are free; the caller has seen that they can be."""
        if self.limited and chunks > self.limit - self.used:
            self.evict(chunks - (self.limit - self.used), self.sweep)
        return 0

    cdef int keep_below_watermark(self, int64_t now_ns) except -1 nogil:
        """The background eviction of a tier with a watermark."""
        cdef int32_t wanted
        if now_ns < self.next_check_ns:
            return 0
        self.next_check_ns = now_ns + self.period_ns
        if self.used < self.high:
            return 0
        wanted = max(<int32_t>1, <int32_t>(self.used * self.ratio)) if self.ratio > 0 else self.used - self.low
        wanted = min(wanted, self.used - self.pinned)
        if wanted > self.scratch:
            self.fit_scratch(wanted)
        self.reason = WATERMARK
        try:
            if wanted > 0:
                self.evict(wanted, self.sweep)
        finally:
            self.reason = EVICTED
        return 0

    # -- from Python ---------------------------------------------------------------------------

    def link_below(self, StackedTier below):
        """Hand what this tier evicts to ``below``."""
        self.below = below

    def set_faults(self, *, bint unhealthy=False, double get_fails=0.0, double put_fails=0.0):
        """Faults in force from now on: shares of gets and puts that fail, each in 0 … 1."""
        self.unhealthy = unhealthy
        self.get_fails = share_of_64(get_fails)
        self.put_fails = share_of_64(put_fails)

    def clear_store(self, int64_t request, int32_t worker):
        """Forget all blocks at once, as a restart of ``worker`` before ``request`` does; one CLEAR tells of it."""
        cdef int32_t slot
        self.view.request.index = request
        self.worker = worker
        for slot in range(self.fresh):
            if self.refs[slot] == 0:
                continue
            if self.refs[slot] > 1:
                raise ValueError(f"tier {self.name}: a block is pinned")
            if self.limited:
                self.policy.remove_slots(&slot, 1)
            self.refs[slot] = 0
            if self.seen is not None:
                self.seen.set_state(self.keys[slot], FAULTY)
            self.release_slots(&slot, 1, NO_EVENT)
        if self.log is not None:
            self.record(CLEAR, RESTART, 0, False, 0)

    def counters(self):
        """All counters so far, by the names in ``TIER_COUNTS``."""
        return {name: self.counts[i] for i, name in enumerate(TIER_COUNTS)}

    def ages_log2(self):
        """How many evicted chunks were 2^i … 2^(i+1) - 1 ns old."""
        return [self.ages[i] for i in range(AGE_BUCKETS)]

    def read_blocks(self, uint64_t[::1] keys, uint64_t[::1] parents, int32_t[::1] depths):
        """Write the key of each resident chunk, in slot order, the key of the one before it, and how
        many there are before it. All three have ``used`` entries."""
        cdef int32_t slot, i = 0
        if not keys.shape[0] == parents.shape[0] == depths.shape[0] == self.used:
            raise ValueError(f"{self.used} chunks are resident")
        for slot in range(self.fresh):
            if self.refs[slot] > 0:
                keys[i] = self.keys[slot]
                parents[i] = self.facts[slot].parent
                depths[i] = self.facts[slot].depth
                i += 1


cdef uint64_t share_of_64(double share) except? 1:
    if not 0 <= share <= 1:
        raise ConfigError(f"a share of {share:g} is not between 0 and 1")
    return <uint64_t>0xffffffffffffffff if share == 1 else <uint64_t>(share * 18446744073709551616.0)
