"""Blocks between the tiers of a worker: what an operation set going, the transfers, and what is lost of them."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.cache.events cimport INSERT, WITHDRAWN, Event
from kvbench.cache.flights cimport BY_DEMOTION, BY_PROMOTION, Filled, Flight
from kvbench.cache.frame cimport Level
from kvbench.cache.stacked cimport StackedTier
from kvbench.serving.holdings cimport Holdings
from kvbench.serving.request cimport LANDED, Request
from kvbench.serving.traffic cimport Entry, Write

cdef enum:
    CAUSES = 3


cdef class Shipments(Holdings):
    """Adds what is under way."""

    # -- what the operation at hand set going --------------------------------------------------

    cdef int settle(self) except -1 nogil:
        """After each operation: writes whose source is gone are lost, and everybody hears of the events."""
        self.lose_unwritten()
        return self.observer.changed()

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
