"""Events as they arrive: numbered by their worker, some of them twice, late, or never.

Each worker numbers its events from 0; so does each store that several workers share, whose events are
none of theirs (its source has a number above the workers'). What has been heard before is dropped; a number that is
skipped is a gap, and what the index believes of that worker may be stale from then on; an event
that comes late after all fills its gap, and counts as it would have in time. A worker that starts
again forgets what it held, and so does the index.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove

from kvbench.cache.events cimport CLEAR, MOVE, Event
from kvbench.memory cimport no_memory
from kvbench.routing.index cimport KvbmIndex

cdef enum:
    MAX_RANGES = 1024  # gaps of one worker that are remembered; what comes later for older ones is a duplicate


@cython.final
cdef class EventFeed:
    """Feeds ``index`` with numbered events. ``count`` sources send them; the first ones are the workers.

    Counters: events ``applied``, ``duplicates`` dropped, ``gaps`` found, the events ``missing`` in them
    as of now, ``late`` ones that filled a gap, ``restarts`` of workers, and ``outdated`` events of a life
    that the worker had before.
    """

    def __cinit__(self, KvbmIndex index):
        cdef int32_t t
        self.index = index
        self.workers = self.count = index.workers
        self.first_source = <int32_t*>calloc(index.tiers, sizeof(int32_t))
        if self.first_source == NULL:
            no_memory("event feed", index.tiers)
        for t in range(index.tiers):
            self.first_source[t] = self.count
            if index.group[t] > 1:
                self.count += (self.workers + index.group[t] - 1) // index.group[t]
        self.sources = <Source*>calloc(self.count, sizeof(Source))
        if self.sources == NULL:
            no_memory("event feed", self.count)

    def __dealloc__(self):
        cdef int32_t w
        if self.sources != NULL:
            for w in range(self.count):
                free(self.sources[w].missing)
        free(self.sources)
        free(self.first_source)

    cdef int32_t source_of(self, int32_t tier, int32_t store) noexcept nogil:
        """Who tells of a store: its worker, or itself if it is shared."""
        cdef int32_t owner = store // self.index.ranks[tier]
        return owner if self.index.group[tier] == 1 else self.first_source[tier] + owner

    cdef int receive_event(self, const Event* event, int32_t epoch) except -1 nogil:
        """Take in one event of the source ``event.worker``. ``epoch`` counts the lives of that; without one
        (NO_EPOCH), number 0 after higher ones is a new life."""
        cdef Source* source = &self.sources[event.worker]
        if epoch == NO_EPOCH:
            if event.sequence == 0 and source.next > 1:
                self.restart(event.worker, source.epoch + 1)
        elif epoch > source.epoch:
            self.restart(event.worker, epoch)
        elif epoch < source.epoch:
            self.outdated += 1
            return 0
        if event.sequence < source.next:
            if not self.fill_gap(source, event.sequence):
                self.duplicates += 1
                return 0
            self.late += 1
        else:
            if event.sequence > source.next:
                self.note_gap(source, source.next, event.sequence)
            source.next = event.sequence + 1
        self.applied += 1
        return self.index.take(event)

    cdef int restart(self, int32_t worker, int32_t epoch) except -1 nogil:
        cdef Source* source = &self.sources[worker]
        self.restarts += 1
        source.epoch = epoch
        source.next = 0
        source.ranges = 0
        source.stale = False
        return self.index.clear_worker(worker) if worker < self.workers else 0

    cdef int note_gap(self, Source* source, int64_t first, int64_t end) except -1 nogil:
        self.gaps += 1
        self.missing += end - first
        source.stale = True
        if source.ranges == MAX_RANGES:
            source.ranges -= 1
            memmove(source.missing, source.missing + 1, source.ranges * sizeof(Range))
        self.make_room(source)
        source.missing[source.ranges].first = first
        source.missing[source.ranges].end = end
        source.ranges += 1
        return 0

    cdef int make_room(self, Source* source) except -1 nogil:
        """Have room for one range more."""
        cdef Range* missing
        if source.ranges == source.room:
            missing = <Range*>realloc(source.missing, (2 * source.room + 4) * sizeof(Range))
            if missing == NULL:
                no_memory("event feed", source.room)
            source.missing = missing
            source.room = 2 * source.room + 4
        return 0

    cdef int fill_gap(self, Source* source, int64_t number) except -1 nogil:
        """Whether ``number`` was missing; it is no longer."""
        cdef int32_t at = source.ranges - 1
        cdef Range* found
        while at >= 0 and number < source.missing[at].first:
            at -= 1
        if at < 0 or number >= source.missing[at].end:
            return False
        found = &source.missing[at]
        self.missing -= 1
        if number == found.first:
            found.first += 1
        elif number == found.end - 1 or source.ranges == MAX_RANGES:
            # Where there are too many to split one, its later half is given up: what comes of it is a duplicate.
            found.end = number
        else:
            self.make_room(source)
            found = &source.missing[at]
            memmove(found + 1, found, (source.ranges - at) * sizeof(Range))
            source.ranges += 1
            found.end = number
            (found + 1).first = number + 1
        if found.first >= found.end:
            source.ranges -= 1
            memmove(found, found + 1, (source.ranges - at) * sizeof(Range))
        return True

    def receive(self, const unsigned char[::1] records, int32_t epoch=NO_EPOCH):
        """Take in events, packed as :meth:`kvbench.cache.EventLog.tobytes` packs them. ``epoch`` says how
        often their workers have started again; without it, number 0 after higher ones says so."""
        cdef int64_t i, n = records.shape[0] // <int64_t>sizeof(Event)
        cdef const Event* events
        if records.shape[0] % <int64_t>sizeof(Event):
            raise ValueError(f"{records.shape[0]} bytes are no whole number of events")
        if n == 0:
            return
        events = <const Event*>&records[0]
        for i in range(n):
            self.check(&events[i])
        with nogil:
            for i in range(n):
                self.index.reserve(&events[i].key, 1)
                self.receive_event(&events[i], epoch)

    cdef int check(self, const Event* event) except -1:
        """Raise ValueError for an event of a worker or a place that is not there."""
        if not 0 <= event.worker < self.count:
            raise ValueError(f"event of worker {event.worker}; sources are 0 to {self.count - 1}")
        if event.kind > CLEAR:
            raise ValueError(f"event of kind {event.kind}; kinds are 0 to {CLEAR}")
        self.check_place(event.tier, event.store)
        if event.kind == MOVE:
            self.check_place(event.source, event.source_store)
        return 0

    cdef int check_place(self, int32_t tier, int32_t store) except -1:
        if tier >= self.index.tiers:
            raise ValueError(f"event of tier {tier}; tiers are 0 to {self.index.tiers - 1}")
        if store < 0 or store // self.index.ranks[tier] * self.index.group[tier] >= self.workers:
            raise ValueError(f"event of store {store} of tier {tier}, which has not so many")
        return 0

    @property
    def stale_sources(self):
        """Sources of whose events some have been missed since they started."""
        cdef int32_t w
        return [w for w in range(self.count) if self.sources[w].stale]
