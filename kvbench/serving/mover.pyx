"""What a request does to the caches of its worker on the clock: it takes blocks, waits for them, and lets go.

Taking blocks is one operation of the tier stack, the same as in order replay: all of the request is looked up
and given slots wherever it is to be (semantics §5.1). What takes time is only when lookups find it: blocks are
pending until they are computed, fetched or written (:mod:`kvbench.cache.flights`).
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from kvbench.cache.flights cimport BY_COMPUTING
from kvbench.cache.frame cimport SERVE, STORE_ONLY
from kvbench.cache.stacked cimport StackedTier
from kvbench.serving.holdings cimport MOST_LEVELS
from kvbench.serving.request cimport DECLINED_BLOCKS, LANDED, READMITTED_BLOCKS, Pin, Request
from kvbench.serving.shipments cimport Shipments
from kvbench.serving.traffic cimport Entry, Write


cdef class Mover(Shipments):
    """The blocks of one worker.

    ``stack``        its tiers; the first one is the GPU.
    ``chunk_bytes``  of a chunk in one store of each tier; 0 where nobody knows.
    ``reads``, ``writes``  number of the path that reads from and writes to each tier take; -1: no time.
    ``share``        a request waits for the blocks that another one computes.
    ``cheaper``      what computing gets sooner is not loaded.
    """

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
        if request.fresh:
            self.observer.committed(request)
        return self.depart_filled(NULL)

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
                record.length = 0
                for k in range(record.count):
                    entry = &record.entries[k]
                    if (entry.chunk + 1) * self.block_tokens * self.stack.level[record.level].multiple > request.computed:
                        (<StackedTier>entry.tier).worker = self.worker
                        (<StackedTier>entry.tier).abandon(entry.slot, 1)
                        entry.slot = -1
                    else:
                        record.length = max(record.length, entry.position + 1)
                self.start_write(write)
            write = after
        request.writes = -1
        return self.settle()
