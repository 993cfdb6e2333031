"""The way of events from the workers to a router's index, which takes time and may lose some (semantics §8.3).

A worker, or a store that several share, collects its events for the coalescing time and sends them
as one message. A message is
lost, doubled, or overtaken by the worker's next one with given odds; else it arrives after the
delay. The router reads what has arrived, a batch a cycle. All draws come from a seeded stream;
with every setting at zero the index hears at once, before the next request is routed.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kvbench.cache.events cimport CLEAR, DELETE, INSERT, MOVE, RESTART, Event, EventLog
from kvbench.memory cimport no_memory
from kvbench.rng cimport stream_seed, stream_uniform
from kvbench.routing.feed cimport EventFeed
from kvbench.routing.load cimport Moment, make_span, passed

from kvbench.units import AT_ONCE

cdef enum:
    ALL = 0x7fffffffffffffff


@cython.final
cdef class EventChannel:
    """Brings events to ``feed``.

    ``coalesce``, ``delay``, ``cycle``  how long a worker collects, a message travels, and the router waits between two
                 looks at what has arrived: a :class:`kvbench.units.Lag` each.
    ``batch``    events that the router reads in a cycle; 0: all.
    ``loss``, ``duplication``, ``reorder``  shares of messages that are lost, come twice, come after the next one.
    ``seed``     of the draws.

    Counters: ``messages`` sent, and of these lost, duplicated and reordered ones; ``lost_events``; ``cycles`` in
    which something was read.
    """

    def __cinit__(self, EventFeed feed, *, coalesce=AT_ONCE, delay=AT_ONCE, cycle=AT_ONCE,
                  int64_t batch=0, double loss=0, double duplication=0, double reorder=0, uint64_t seed=0):
        self.feed = feed
        self.sources = feed.count
        self.coalesce = make_span(coalesce)
        self.delay = make_span(delay)
        self.cycle = make_span(cycle)
        self.batch = batch
        self.loss = loss
        self.duplication = duplication
        self.reorder = reorder
        stream_seed(&self.stream, seed)
        self.outboxes = <Outbox*>calloc(self.sources, sizeof(Outbox))
        self.collecting = <int32_t*>calloc(self.sources, sizeof(int32_t))
        if self.outboxes == NULL or self.collecting == NULL:
            no_memory("event channel", self.sources)
        self.grow()

    def __dealloc__(self):
        cdef int64_t i
        if self.outboxes != NULL:
            for i in range(self.sources):
                free(self.outboxes[i].waiting.events)
                free(self.outboxes[i].held.events)
        if self.flight != NULL:
            for i in range(self.first, self.count):
                free(self.flight[i & (self.room - 1)].events)
        free(self.outboxes)
        free(self.collecting)
        free(self.flight)

    @property
    def under_way(self):
        """Events that have been sent, or wait to be, and have not been read."""
        cdef int64_t i, found = -<int64_t>self.read
        for i in range(self.first, self.count):
            found += self.flight[i & (self.room - 1)].count
        for i in range(self.sources):
            found += self.outboxes[i].waiting.count + self.outboxes[i].held.count
        return found

    cdef int collect(self, EventLog log, int64_t start, Moment now) except -1 nogil:
        """Take over the events of ``log`` from position ``start`` on, which happen now."""
        cdef int64_t i
        cdef Outbox* box
        self.send_due(now)
        for i in range(start, log.size):
            if log.events[i].kind == CLEAR and self.starts_again(log, i):
                # It loses what it had to send, and numbers from 0.
                box = &self.outboxes[log.events[i].worker]
                box.waiting.count = 0
                box.epoch += 1
                box.numbered = 0
            self.collect_event(&log.events[i], now)
        return 0

    cdef bint starts_again(self, EventLog log, int64_t at) noexcept nogil:
        """Whether the event at this position is the first of those by which a worker lets go of all its own
        stores at once."""
        cdef const Event* event = &log.events[at]
        cdef const Event* other
        cdef int32_t t, stores = 0
        cdef int64_t i
        if event.reason != RESTART or self.feed.index.group[event.tier] > 1:
            return False
        for t in range(self.feed.index.tiers):
            if self.feed.index.group[t] == 1:
                stores += self.feed.index.ranks[t]
        for i in range(log.size):
            other = &log.events[i]
            if other.kind == CLEAR and other.reason == RESTART and other.worker == event.worker and (
                other.request == event.request and self.feed.index.group[other.tier] == 1
            ):
                if i < at:
                    return False
                stores -= 1
        return stores == 0

    cdef int collect_event(self, const Event* event, Moment now) except -1 nogil:
        """Let who tells of the event's place collect it. A move between places of different sources is told by
        both."""
        cdef int32_t source = self.feed.source_of(event.tier, event.store)
        cdef int32_t other
        cdef Event part = event[0]
        if event.kind == MOVE:
            other = self.feed.source_of(event.source, event.source_store)
            if other != source:
                part.kind = DELETE
                part.tier = event.source
                part.store = event.source_store
                self.put(other, &part, now)
                part = event[0]
                part.kind = INSERT
        return self.put(source, &part, now)

    cdef int put(self, int32_t source, const Event* event, Moment now) except -1 nogil:
        """Add an event to what a source collects."""
        cdef Outbox* box = &self.outboxes[source]
        cdef Message* message = &box.waiting
        cdef Event* events
        if message.count == message.room:
            events = <Event*>realloc(message.events, (2 * message.room + 16) * sizeof(Event))
            if events == NULL:
                no_memory("event channel", message.room)
            message.events = events
            message.room = 2 * message.room + 16
        if message.count == 0:
            message.sent = now
        if not box.listed:
            box.listed = True
            self.collecting[self.count_collecting % self.sources] = source
            self.count_collecting += 1
        events = &message.events[message.count]
        events[0] = event[0]
        events.worker = source
        events.sequence = box.numbered
        box.numbered += 1
        message.count += 1
        return 0

    cdef int advance(self, Moment now) except -1 nogil:
        """Bring to the index what has arrived by now."""
        self.send_due(now)
        return self.read_events(now, self.allowance(now))

    cdef int send_due(self, Moment now) except -1 nogil:
        """Send what has been collected for long enough. The clock may have gone on since it was."""
        cdef int32_t worker
        cdef Moment at
        while self.first_collecting < self.count_collecting:
            worker = self.collecting[self.first_collecting % self.sources]
            at = self.outboxes[worker].waiting.sent
            if not passed(self.coalesce, at, now):
                break
            self.first_collecting += 1
            if self.coalesce.timed and self.coalesce.length:
                at.time_ns += self.coalesce.length
                at.request = now.request
            elif self.coalesce.length:
                at.request += self.coalesce.length
                at.time_ns = now.time_ns
            self.send(worker, at)
        return 0

    cdef int send(self, int32_t worker, Moment at) except -1 nogil:
        """Send what a worker has collected."""
        cdef Outbox* box = &self.outboxes[worker]
        cdef Message message
        message = box.waiting
        box.listed = False
        memset(&box.waiting, 0, sizeof(Message))
        if message.count == 0:
            free(message.events)
            return 0
        message.sent = at
        message.worker = worker
        message.epoch = box.epoch
        self.messages += 1
        if self.chance(self.loss):
            self.lost_messages += 1
            self.lost_events += message.count
            free(message.events)
            return 0
        if box.held.count == 0 and self.chance(self.reorder):
            self.reordered_messages += 1
            box.held = message
            return 0
        self.post(&message)
        if self.chance(self.duplication):
            self.duplicated_messages += 1
            message.events = <Event*>malloc(message.count * sizeof(Event))
            if message.events == NULL:
                no_memory("event channel", message.count)
            memcpy(message.events, self.flight[(self.count - 1) & (self.room - 1)].events, message.count * sizeof(Event))
            self.post(&message)
        if box.held.count:
            box.held.sent = at
            self.post(&box.held)
            memset(&box.held, 0, sizeof(Message))
        return 0

    cdef int post(self, Message* message) except -1 nogil:
        """Put a message, whose events are owned by the channel from now on, on its way."""
        if self.count - self.first == self.room:
            self.grow()
        self.flight[self.count & (self.room - 1)] = message[0]
        self.count += 1
        return 0

    cdef int64_t allowance(self, Moment now) noexcept nogil:
        """Events that the router may read now: a batch for each cycle since it looked last. Cycles begin at the
        multiples of their length."""
        cdef int64_t length = max(self.cycle.length, <int64_t>1)
        cdef int64_t cycles
        if self.cycle.length == 0 and self.batch == 0:
            return ALL
        if self.cycle.timed and self.cycle.length:
            cycles = now.time_ns // length - self.polled.time_ns // length
        else:
            cycles = now.request // length - self.polled.request // length
        self.polled = now
        if cycles == 0:
            return 0
        return cycles * self.batch if self.batch else ALL

    cdef int read_events(self, Moment now, int64_t most) except -1 nogil:
        """Read so many of the events that have arrived."""
        cdef Message* message
        cdef int64_t left = most
        while left > 0 and self.first < self.count:
            message = &self.flight[self.first & (self.room - 1)]
            if not passed(self.delay, message.sent, now):
                break
            while left > 0 and self.read < message.count:
                self.feed.receive_event(&message.events[self.read], message.epoch)
                self.read += 1
                left -= 1
            if self.read == message.count:
                free(message.events)
                self.first += 1
                self.read = 0
        if left < most:
            self.cycles += (most - left + self.batch - 1) // self.batch if self.batch else 1
        return 0

    cdef bint chance(self, double share) noexcept nogil:
        """True with odds ``share``; nothing is drawn where there is no choice."""
        return share > 0 and stream_uniform(&self.stream) < share

    cdef int grow(self) except -1 nogil:
        cdef int64_t number, room = max(<int64_t>64, 2 * self.room)
        cdef Message* flight = <Message*>calloc(room, sizeof(Message))
        if flight == NULL:
            no_memory("event channel", room)
        for number in range(self.first, self.count):
            flight[number & (room - 1)] = self.flight[number & (self.room - 1)]
        free(self.flight)
        self.flight = flight
        self.room = room
        return 0

    def flush(self):
        """Deliver everything that is under way, however long it would take."""
        cdef int32_t w
        cdef Moment now
        while self.first_collecting < self.count_collecting:
            w = self.collecting[self.first_collecting % self.sources]
            self.first_collecting += 1
            self.send(w, self.outboxes[w].waiting.sent)
        for w in range(self.sources):
            if self.outboxes[w].held.count:
                self.post(&self.outboxes[w].held)
                memset(&self.outboxes[w].held, 0, sizeof(Message))
        now.request = now.time_ns = ALL
        self.read_events(now, ALL)
