"""What a request does to the caches of its worker on the clock: it takes blocks, waits for them, and lets go.

Taking blocks is one operation of the tier stack, the same as in order replay: all of the request is looked up
and given slots wherever it is to be (semantics §5.1). What takes time is only when lookups find it: blocks are
pending until they are computed, fetched or written (:mod:`kvbench.cache.flights`).

Of the GPU a running request holds ``ceil(tokens / chunk)`` chunks. Those that are blocks of the cache are pinned;
the others (a partial last block, the answer, copies of what another request computes at the same time) are
held back from the tier's capacity.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.cache.events cimport INSERT, WITHDRAWN, Event, EventLog
from kvbench.cache.flights cimport BY_COMPUTING, BY_DEMOTION, BY_PROMOTION, Filled, Flight
from kvbench.cache.frame cimport SERVE, STORE_ONLY, Level
from kvbench.cache.stack cimport TierStack
from kvbench.cache.stacked cimport StackedTier
from kvbench.eviction.view cimport STORED_NOW
from kvbench.memory cimport no_memory
from kvbench.serving.compute cimport ComputeModel
from kvbench.serving.request cimport DECLINED_BLOCKS, LANDED, NEED_BLOCKS, READMITTED_BLOCKS, Pin, Request
from kvbench.serving.traffic cimport Entry, Traffic, Write

cdef enum:
    MOST_LEVELS = 64
    CAUSES = 3


cdef class Observer:
    """Hears what happens to requests; this one takes no notice."""

    cdef int tell_facts(self, Request* request) except -1 nogil:
        """The stack of the request's worker is to know what the request is."""
        return 0

    cdef int looked_up(self, Request* request) except -1 nogil:
        """It was looked up for the first time."""
        return 0

    cdef int committed(self, Request* request) except -1 nogil:
        """And was given its slots."""
        return 0

    cdef int changed(self) except -1 nogil:
        """Events may have been recorded."""
        return 0

    cdef int prefill_ended(self, Request* request) except -1 nogil:
        return 0

    cdef int answer_stored(self, Request* request) except -1 nogil:
        """The blocks of its answer were stored, after all else."""
        return 0

    cdef int ended(self, Request* request) except -1 nogil:
        """It is done, or rejected; nobody refers to it afterwards."""
        return 0


cdef class Mover:
    """The blocks of one worker.

    ``stack``        its tiers; the first one is the GPU.
    ``chunk_bytes``  of a chunk in one store of each tier; 0 where nobody knows.
    ``reads``, ``writes``  number of the path that reads from and writes to each tier take; -1: no time.
    ``share``        a request waits for the blocks that another one computes.
    ``cheaper``      what computing gets sooner is not loaded.
    """

    def __cinit__(self, TierStack stack, Traffic traffic, Observer observer, ComputeModel compute, *,
                  int64_t block_tokens, list chunk_bytes, list reads, list writes, EventLog log=None,
                  bint share=False, bint cheaper=False):
        cdef int32_t t
        if not stack.timed:
            raise ValueError("the stack keeps no time")
        if not 0 < stack.levels <= MOST_LEVELS:
            raise ValueError(f"{stack.levels} tiers")
        self.stack = stack
        self.traffic = traffic
        self.observer = observer
        self.compute = compute
        self.log = log
        self.worker = stack.worker
        self.block_tokens = block_tokens
        self.chunk_tokens = block_tokens * stack.level[0].multiple
        self.ranks = stack.level[0].ranks
        self.share = share
        self.cheaper = cheaper
        self.chunk_bytes = <int64_t*>calloc(stack.levels, sizeof(int64_t))
        self.reads = <int32_t*>calloc(stack.levels, sizeof(int32_t))
        self.writes_to = <int32_t*>calloc(stack.levels, sizeof(int32_t))
        if self.chunk_bytes == NULL or self.reads == NULL or self.writes_to == NULL:
            no_memory("mover", stack.levels)
        for t in range(stack.levels):
            self.chunk_bytes[t] = chunk_bytes[t]
            self.reads[t] = reads[t]
            self.writes_to[t] = writes[t]

    def __dealloc__(self):
        free(self.chunk_bytes)
        free(self.reads)
        free(self.writes_to)

    cdef PyObject* gpu_at(self, int32_t rank) noexcept nogil:
        return self.stack.level[0].places[rank].tier

    # -- room ----------------------------------------------------------------------------------

    cdef int64_t chunks_for(self, int64_t tokens) noexcept nogil:
        """Chunks of the GPU that so many tokens take."""
        return (tokens + self.chunk_tokens - 1) // self.chunk_tokens

    cdef bint fits_ever(self, int64_t tokens) noexcept nogil:
        """Whether so many tokens fit into an empty GPU."""
        cdef PyObject* gpu = self.gpu_at(0)
        return not (<StackedTier>gpu).limited or (
            self.chunks_for(tokens) <= (<StackedTier>gpu).limit + (<StackedTier>gpu).held_back
        )

    cdef int64_t held_tokens(self) noexcept nogil:
        """Tokens of all chunks that requests hold."""
        cdef PyObject* gpu = self.gpu_at(0)
        return (<int64_t>(<StackedTier>gpu).pinned + (<StackedTier>gpu).held_back) * self.chunk_tokens

    cdef int64_t capacity_tokens(self) noexcept nogil:
        """Tokens that fit; 0 without bound."""
        cdef PyObject* gpu = self.gpu_at(0)
        if not (<StackedTier>gpu).limited:
            return 0
        return (<int64_t>(<StackedTier>gpu).limit + (<StackedTier>gpu).held_back) * self.chunk_tokens

    cdef bint has_room(self, Request* request) noexcept nogil:
        """Whether the request just looked up finds room for all that it is to hold, in every rank."""
        cdef int32_t r, j, slot
        cdef int64_t mine, unpinned
        cdef PyObject* gpu
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            if not (<StackedTier>gpu).limited:
                continue
            mine = unpinned = 0
            for j in range(self.stack.level[0].chunks):
                slot = (<StackedTier>gpu).slots[j]
                if slot >= 0 and not (<StackedTier>gpu).flights[slot].pending:
                    mine += 1
                    unpinned += (<StackedTier>gpu).refs[slot] == 1
            if self.chunks_for(request.target) - mine > (<StackedTier>gpu).limit - (<StackedTier>gpu).pinned - unpinned:
                return False
        return True

    # -- admission -----------------------------------------------------------------------------

    cdef int admit(self, Request* request, bint may_fetch, bint may_start) except -1 nogil:
        """Give the request its blocks if that can be now; returns an Admission."""
        cdef int32_t hit, asked
        cdef bint fetches
        self.stack.again = True
        self.observer.tell_facts(request)
        self.stack.reserve(request.keys, request.blocks)
        self.stack.find(request.keys, request.blocks, 0, request.blocks)
        hit = min(self.stack.hit, request.limit)
        if self.share and self.is_shared_soon(request, hit):
            return SHARED_SOON
        asked = request.limit
        fetches = self.needs_fetch(hit)
        if fetches and self.cheaper:
            asked = self.worth_loading(request, hit)
            fetches = self.needs_fetch(min(hit, asked))
        if fetches and not may_fetch:
            return NO_FETCH_NOW
        if not fetches and not may_start:
            return NO_SEAT_NOW
        if not self.has_room(request):
            return NO_ROOM_NOW
        if request.fresh and asked < hit:
            request.times[DECLINED_BLOCKS] = hit - asked
        self.take(request, asked)
        self.start_fetch(request)
        request.fresh = False
        self.settle()
        return FETCHES if request.moves else STARTS

    cdef bint needs_fetch(self, int32_t hit) noexcept nogil:
        """Whether the leading ``hit`` blocks take time to come."""
        cdef int32_t i
        for i in range(hit - 1, -1, -1):
            if self.stack.credit[i] > 0 and self.reads[self.stack.credit[i]] >= 0:
                return True
        return False

    cdef bint is_shared_soon(self, Request* request, int32_t hit) noexcept nogil:
        """Whether the first block that is missing is on its way to the GPU."""
        cdef int32_t j = hit // self.stack.level[0].multiple
        cdef PyObject* gpu = self.gpu_at(0)
        cdef int32_t slot
        if hit >= request.limit or j >= self.stack.level[0].chunks:
            return False
        slot = (<StackedTier>gpu).slots[j]
        return slot >= 0 and (<StackedTier>gpu).flights[slot].pending

    cdef int32_t worth_loading(self, Request* request, int32_t hit) except -1 nogil:
        """How many leading blocks to take from the tiers so that the prompt is computed soonest: all ``hit`` ones,
        or those before a run that a lower tier would deliver. Loads from several tiers run side by side."""
        cdef int64_t chunks[MOST_LEVELS]
        cdef int64_t load, total, soonest = -1
        cdef int64_t now = self.traffic.clock.now_ns
        cdef int32_t i = 0, end, t, m, best = hit
        memset(chunks, 0, sizeof(chunks))
        load = 0
        while True:
            if i == hit or self.stack.credit[i] > 0:
                total = load + self.compute.prefill_ns(
                    max(request.target - i * self.block_tokens, <int64_t>1), i * self.block_tokens
                )
                if soonest < 0 or total < soonest:
                    soonest = total
                    best = i
            if i == hit:
                return best
            t = self.stack.credit[i]
            end = i + 1
            while end < hit and self.stack.credit[end] == t:
                end += 1
            if t > 0 and self.reads[t] >= 0:
                m = self.stack.level[t].multiple
                chunks[t] += (end - 1) // m - i // m + 1
                load = max(load, self.traffic.transfers.estimate_ns(
                    self.reads[t], chunks[t] * self.chunk_bytes[t], 1, now
                ))
            i = end

    cdef int take(self, Request* request, int32_t asked) except -1 nogil:
        """Look the request up for good, give it slots everywhere, and hold its part of the GPU."""
        cdef int32_t r, before
        cdef PyObject* gpu
        self.mark = self.log.size if self.log is not None else 0
        self.stack.again = not request.fresh
        self.stack.has_partial = False
        self.stack.lookup(request.keys, request.blocks, asked, request.blocks)
        if request.fresh:
            self.observer.looked_up(request)
        else:
            request.times[READMITTED_BLOCKS] += self.stack.hit
        self.stack.commit()
        if request.fresh:
            self.observer.committed(request)
        request.computed = min(self.stack.hit * self.block_tokens, request.target - 1)
        request.held_chunks = self.chunks_for(request.target)
        self.pin_gpu(request)
        self.pin_sources(request)
        self.depart_filled(request)
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            before = (<StackedTier>gpu).evicted
            (<StackedTier>gpu).hold_back(<int32_t>(request.held_chunks - self.pins_in(request, gpu)))
            self.stack.evicted += ((<StackedTier>gpu).evicted - before) * self.stack.level[0].multiple
        return self.depart_filled(NULL)

    cdef int32_t pins_in(self, const Request* request, PyObject* tier) noexcept nogil:
        """Chunks of a store that the request has pinned."""
        cdef int32_t k, count = 0
        for k in range(request.pin_count):
            count += request.pins[k].tier == tier
        return count

    cdef int pin_gpu(self, Request* request) except -1 nogil:
        """Pin the request's blocks in the GPU; those that have a slot since just now are under way."""
        cdef Level* level = &self.stack.level[0]
        cdef int32_t r, j, slot, cause, last
        cdef PyObject* gpu
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            for j in range(level.chunks):
                slot = (<StackedTier>gpu).slots[j]
                cause = LANDED
                if slot <= STORED_NOW:
                    slot = STORED_NOW - slot
                    last = (j + 1) * level.multiple - 1
                    cause = BY_PROMOTION if last < self.stack.hit and self.stack.credit[last] > 0 else BY_COMPUTING
                if slot < 0 or not (<StackedTier>gpu).holds(slot, level.keys[j]):
                    continue
                if cause == LANDED and (<StackedTier>gpu).flights[slot].pending:
                    continue  # another request is computing it: this one has a copy of its own
                (<StackedTier>gpu).pin_slot(slot)
                self.add_pin(&request.pins, &request.pin_count, &request.pin_room, gpu, slot, j, cause)
                if cause != LANDED:
                    (<StackedTier>gpu).depart(slot)
            (<StackedTier>gpu).filled_count = 0
        return 0

    cdef int pin_sources(self, Request* request) except -1 nogil:
        """Pin what lower tiers deliver until it has been read."""
        cdef Level* level
        cdef int32_t t, r, j, slot
        cdef PyObject* tier
        for t in range(1, self.stack.levels):
            level = &self.stack.level[t]
            if level.delivered == 0:
                continue
            for r in range(level.ranks):
                tier = level.places[r].tier
                for j in range(level.chunks):
                    slot = (<StackedTier>tier).slots[j]
                    if slot >= 0 and (<StackedTier>tier).holds(slot, level.keys[j]) and self.stack.delivered_by(t, j):
                        (<StackedTier>tier).pin_slot(slot)
                        self.add_pin(
                            &request.sources, &request.source_count, &request.source_room, tier, slot, j, LANDED
                        )
        return 0

    cdef int add_pin(self, Pin** pins, int32_t* count, int32_t* room, PyObject* tier, int32_t slot, int32_t chunk,
                     int32_t cause) except -1 nogil:
        cdef Pin* grown
        if count[0] == room[0]:
            grown = <Pin*>realloc(pins[0], (2 * room[0] + 32) * sizeof(Pin))
            if grown == NULL:
                no_memory("request", room[0])
            pins[0] = grown
            room[0] = 2 * room[0] + 32
        pins[0][count[0]].tier = tier
        pins[0][count[0]].slot = slot
        pins[0][count[0]].chunk = chunk
        pins[0][count[0]].cause = cause
        count[0] += 1
        return 0

    # -- what the operation at hand set going --------------------------------------------------

    cdef int depart_filled(self, Request* request) except -1 nogil:
        """Blocks that were given slots in lower tiers are on their way there from now on."""
        cdef int32_t writes[CAUSES]
        cdef int32_t t, cause
        cdef Write* record
        for t in range(1, self.stack.levels):
            for cause in range(CAUSES):
                writes[cause] = -1
            for r in range(self.stack.level[t].ranks):
                self.depart_below(self.stack.level[t].places[r].tier, t, writes)
            for cause in range(CAUSES):
                if writes[cause] < 0:
                    continue
                record = &self.traffic.writes[writes[cause]]
                record.request = NULL
                record.level = t
                record.cause = cause
                record.worker = self.worker
                if cause == BY_DEMOTION or request == NULL:
                    self.start_write(writes[cause])
                else:
                    record.request = request
                    record.next = request.writes
                    request.writes = writes[cause]
        return self.withdraw_events()

    cdef int depart_below(self, PyObject* tier, int32_t level, int32_t* writes) except -1 nogil:
        cdef int32_t positions[CAUSES]
        cdef int32_t k
        cdef Filled* filled
        for k in range(CAUSES):
            positions[k] = 0
        for k in range((<StackedTier>tier).filled_count):
            filled = &(<StackedTier>tier).filled[k]
            if not (<StackedTier>tier).holds(filled.slot, filled.key) or (<StackedTier>tier).flights[filled.slot].pending:
                continue  # it has left again in the same operation
            if filled.cause == BY_DEMOTION and self.writes_to[level] < 0:
                continue
            (<StackedTier>tier).depart(filled.slot)
            (<StackedTier>tier).pin_slot(filled.slot)
            if writes[filled.cause] < 0:
                writes[filled.cause] = self.traffic.new_write()
            self.traffic.add_slot(
                writes[filled.cause], tier, filled.slot, (<StackedTier>tier).facts[filled.slot].depth, positions[filled.cause]
            )
            positions[filled.cause] += 1
        (<StackedTier>tier).filled_count = 0
        return 0

    cdef int withdraw_events(self) except -1 nogil:
        """INSERTs tell of blocks that lookups find: those of pending ones are recorded when they land."""
        cdef int64_t i
        cdef int32_t r, slot
        cdef Event* event
        cdef Level* level
        cdef PyObject* tier
        cdef bint any = False
        if self.log is None:
            return 0
        for i in range(self.mark, self.log.size):
            event = &self.log.events[i]
            if event.kind != INSERT:
                continue
            level = &self.stack.level[event.tier]
            for r in range(level.ranks):
                tier = level.places[r].tier
                if (<StackedTier>tier).store != event.store:
                    continue
                slot = (<StackedTier>tier).table.find(event.key)
                if slot >= 0 and (<StackedTier>tier).flights[slot].pending:
                    (<StackedTier>tier).hush(slot)
                    event.kind = WITHDRAWN
                    any = True
        if any:
            self.log.withdraw(self.mark, self.worker)
        self.mark = self.log.size
        return 0

    cdef int settle(self) except -1 nogil:
        """After each operation: writes whose source is gone are lost, and everybody hears of the events."""
        self.lose_unwritten()
        return self.observer.changed()

    cdef int lose_unwritten(self) except -1 nogil:
        cdef int32_t r, k
        cdef PyObject* gpu
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            for k in range((<StackedTier>gpu).lost_count):
                self.lose((<StackedTier>gpu).lost[k])
            (<StackedTier>gpu).lost_count = 0
        return 0

    cdef int lose(self, uint64_t key) except -1 nogil:
        """A block left the GPU while it was being written: where it has not been written by now, it is lost. (A
        chunk of several blocks is, with the last one of them, which is the one that goes first.)"""
        cdef int32_t t, r, k, slot, write
        cdef Level* level
        cdef Write* record
        cdef Entry* entry
        cdef PyObject* tier
        for t in range(1, self.stack.levels):
            level = &self.stack.level[t]
            for r in range(level.ranks):
                tier = level.places[r].tier
                slot = (<StackedTier>tier).table.find(key)
                if slot < 0 or not (<StackedTier>tier).flights[slot].pending:
                    continue
                write = (<StackedTier>tier).flights[slot].write
                record = &self.traffic.writes[write]
                if record.worker != self.worker or record.cause == BY_DEMOTION or record.handle < 0:
                    continue
                for k in range(record.count):
                    entry = &record.entries[k]
                    if entry.tier != tier or entry.slot != slot:
                        continue
                    entry.slot = -1
                    (<StackedTier>tier).worker = self.worker
                    if self.traffic.transfers.moved(record.handle, self.traffic.clock.now_ns) >= (
                        (entry.position + 1) * self.chunk_bytes[t]
                    ):
                        (<StackedTier>tier).land(slot)
                        (<StackedTier>tier).unpin_slot(slot)
                    else:
                        (<StackedTier>tier).abandon(slot, 1)
                        self.traffic.lost_chunks += 1
                    break
        return 0

    # -- transfers -----------------------------------------------------------------------------

    cdef int start_fetch(self, Request* request) except -1 nogil:
        """Read what lower tiers deliver of the request that was just taken."""
        cdef int32_t t
        cdef Level* level
        request.moves = 0
        for t in range(1, self.stack.levels):
            level = &self.stack.level[t]
            if level.read_chunks and self.reads[t] >= 0:
                self.traffic.transfers.start(
                    self.reads[t], level.read_chunks * self.chunk_bytes[t], level.reads, <int64_t>request,
                    self.traffic.clock.now_ns,
                )
                request.moves += 1
        if request.moves == 0:
            self.fetch_ended(request)
        return 0

    cdef int fetch_ended(self, Request* request) except -1 nogil:
        """All of it is in the GPU."""
        cdef int32_t k
        for k in range(request.source_count):
            (<StackedTier>request.sources[k].tier).unpin_slot(request.sources[k].slot)
        request.source_count = 0
        for k in range(request.pin_count):
            if request.pins[k].cause == BY_PROMOTION:
                (<StackedTier>request.pins[k].tier).land(request.pins[k].slot)
                request.pins[k].cause = LANDED
        return self.start_writes(request, BY_PROMOTION)

    cdef int start_writes(self, Request* request, int cause) except -1 nogil:
        """Write to lower tiers what was computed or fetched for the request."""
        cdef int32_t write = request.writes, after
        while write >= 0:
            after = self.traffic.writes[write].next
            if self.traffic.writes[write].cause == cause and self.traffic.writes[write].handle < 0:
                self.start_write(write)
            write = after
        return 0

    cdef int start_write(self, int32_t write) except -1 nogil:
        cdef Write* record = &self.traffic.writes[write]
        if self.writes_to[record.level] < 0 or record.length == 0:
            return self.write_ended(write)
        self.note_reads(record, 1)
        record.handle = self.traffic.transfers.start(
            self.writes_to[record.level], record.length * self.chunk_bytes[record.level], 1,
            (<int64_t>write << 1) | 1, self.traffic.clock.now_ns,
        )
        return 0

    cdef int write_ended(self, int32_t write) except -1 nogil:
        """It is where it belongs."""
        cdef Write* record = &self.traffic.writes[write]
        self.traffic.land_write(write)
        if record.handle >= 0:
            self.note_reads(record, -1)
        if record.request != NULL:
            self.unlink_write(record.request, write)
        self.traffic.drop_write(write)
        return 0

    cdef void unlink_write(self, Request* request, int32_t write) noexcept nogil:
        cdef int32_t* link = &request.writes
        while link[0] != write:
            link = &self.traffic.writes[link[0]].next
        link[0] = self.traffic.writes[write].next

    cdef int note_reads(self, const Write* record, int32_t by) except -1 nogil:
        """The blocks in the GPU that a write reads from."""
        cdef int32_t k, slot
        cdef uint64_t key
        cdef Flight* flight
        cdef PyObject* gpu
        cdef PyObject* tier
        if record.cause == BY_DEMOTION:
            return 0
        for k in range(record.count):
            if record.entries[k].slot < 0:
                continue
            tier = record.entries[k].tier
            gpu = self.gpu_above(tier, record.level)
            key = (<StackedTier>tier).keys[record.entries[k].slot]
            slot = (<StackedTier>gpu).table.find(key)
            if slot < 0:
                continue
            flight = &(<StackedTier>gpu).flights[slot]
            flight.reads = max(flight.reads + by, 0)  # 0: evicted, and stored again since
        return 0

    cdef int land_computed(self, Request* request) except -1 nogil:
        """What the request has computed is visible."""
        cdef int32_t k
        cdef Pin* pin
        for k in range(request.pin_count):
            pin = &request.pins[k]
            if pin.cause == BY_COMPUTING and (pin.chunk + 1) * self.chunk_tokens <= request.computed:
                (<StackedTier>pin.tier).land(pin.slot)
                pin.cause = LANDED
        if request.computed == request.target:
            for k in range(request.pin_count):
                # A partial last block that is kept (tails = "keep").
                pin = &request.pins[k]
                if pin.cause == BY_COMPUTING:
                    (<StackedTier>pin.tier).land(pin.slot)
                    pin.cause = LANDED
            self.start_writes(request, BY_COMPUTING)
        return self.observer.changed()

    cdef int grow(self, Request* request) except -1 nogil:
        """One chunk more for the answer; returns 0 where there is no room for it."""
        cdef int32_t r
        cdef PyObject* gpu
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            if (<StackedTier>gpu).limited and (<StackedTier>gpu).limit - (<StackedTier>gpu).pinned < 1:
                return 0
        self.mark = self.log.size if self.log is not None else 0
        self.observer.tell_facts(request)
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            (<StackedTier>gpu).view.request = self.stack.request
            (<StackedTier>gpu).hold_back(1)
        request.held_chunks += 1
        self.depart_filled(NULL)
        self.settle()
        return 1

    # -- letting go ----------------------------------------------------------------------------

    cdef int release(self, Request* request) except -1 nogil:
        """Give back all that the request holds of the GPU; what it had not computed yet is gone."""
        cdef int32_t k, r
        cdef Pin* pin
        cdef PyObject* gpu
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            (<StackedTier>gpu).give_back(<int32_t>(request.held_chunks - self.pins_in(request, gpu)))
        for k in range(request.pin_count):
            pin = &request.pins[k]
            if pin.cause == LANDED:
                (<StackedTier>pin.tier).unpin_slot(pin.slot)
                continue
            (<StackedTier>pin.tier).note_dropped(pin.slot)
            (<StackedTier>pin.tier).abandon(pin.slot, 1)
        request.pin_count = 0
        request.held_chunks = 0
        return self.give_up_writes(request)

    cdef int store_answer(self, Request* request) except -1 nogil:
        """Store the blocks that the answer of a finished request filled; it holds nothing any more."""
        cdef int32_t r
        cdef PyObject* gpu
        self.mark = self.log.size if self.log is not None else 0
        self.observer.tell_facts(request)
        self.stack.reserve(request.keys, request.stored)
        self.stack.again = True
        self.stack.has_partial = False
        self.stack.mode = STORE_ONLY
        self.stack.skip = request.blocks
        try:
            self.stack.lookup(request.keys, request.stored, request.stored, request.stored)
            self.observer.answer_stored(request)
            self.stack.commit()
        finally:
            self.stack.mode = SERVE
            self.stack.skip = 0
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            (<StackedTier>gpu).filled_count = 0  # what is computed is there at once
        self.depart_filled(NULL)
        return self.settle()

    cdef int give_up_writes(self, Request* request) except -1 nogil:
        """Its writes go on by themselves; of those that have not started, what was not computed is gone."""
        cdef int32_t write = request.writes, after, k
        cdef Write* record
        cdef Entry* entry
        while write >= 0:
            record = &self.traffic.writes[write]
            after = record.next
            record.request = NULL
            if record.handle < 0:
                for k in range(record.count):
                    entry = &record.entries[k]
                    if (entry.chunk + 1) * self.block_tokens * self.stack.level[record.level].multiple > request.computed:
                        (<StackedTier>entry.tier).worker = self.worker
                        (<StackedTier>entry.tier).abandon(entry.slot, 1)
                        entry.slot = -1
                self.start_write(write)
            write = after
        request.writes = -1
        return self.settle()

    cdef PyObject* gpu_above(self, PyObject* tier, int32_t level) noexcept nogil:
        """The store of the GPU that gives a store below its blocks."""
        cdef int32_t r
        for r in range(min(self.ranks, self.stack.level[level].ranks)):
            if self.stack.level[level].places[r].tier == tier:
                return self.gpu_at(r)
        return self.gpu_at(0)
