"""Transfers over links: a turn, then latency, then a share of the bandwidth (semantics §9.4).

A transfer asks for the links of its path. At each of them it may have to wait for its turn; then
latency passes, which uses no bandwidth; then it flows, until it has moved all its bytes
(flows.pyx). On a serial path it does so link by link.

An end is told in whole nanoseconds, rounded up, so that nothing is faster than its link. What the
roundings of single steps may have added is taken off before (``due`` in fixed.pxd), so that an exact
end at a whole nanosecond is told as it is; and no end is told that is before latency + size / bandwidth,
computed for the transfer alone.

A change costs O(log n) of the transfers and O(legs) of the links that it touches.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free

from kvbench.checks cimport debug_build
from kvbench.memory cimport no_memory
from kvbench.serving.clock cimport NEVER_NS
from kvbench.serving.fixed cimport FAR, MOST_BYTES, amount, due, later, moment, round_up, time_for, u128
from kvbench.serving.flows cimport Leg, LinkState, Path, Transfer
from kvbench.serving.heap cimport heap_push, heap_remove
from kvbench.serving.turns cimport DELAYED, ENDED, FLOWING, SLOT_BITS, SLOT_MASK, Turns, waves_ns

from kvbench.errors import ArgumentError


cdef int wrong_transfer(int64_t size_bytes, int64_t operations) except -1 nogil:
    with gil:
        raise ArgumentError(
            f"a transfer of {size_bytes:,} bytes in {operations:,} operations: it has 0 to {MOST_BYTES:,} bytes, in "
            "at least one operation"
        )


@cython.final
cdef class Transfers(Turns):
    """All transfers under way over ``links``, a list of Link.

    Time only moves forward: ``now_ns`` of a call is never before that of an earlier one.
    ``under_way``  transfers that wait or are in flight.
    """

    def __dealloc__(self):
        free(self.done.entries)

    cdef int64_t start(
        self, int32_t path, int64_t size_bytes, int64_t operations, int64_t owner, int64_t now_ns
    ) except -1 nogil:
        """Start a transfer of ``size_bytes`` in so many operations; returns its handle. ``owner`` is the caller's."""
        cdef Transfer* transfer
        cdef int64_t handle
        cdef int32_t slot
        if not 0 <= size_bytes <= MOST_BYTES or operations < 0 or (operations == 0 and size_bytes > 0):
            wrong_transfer(size_bytes, operations)
        self.advance(now_ns)
        self.reach(moment(now_ns))
        slot = self.take_slot()
        if slot > SLOT_MASK:
            no_memory("transfers", slot)
        transfer = &self.transfers[slot]
        handle = self.started << SLOT_BITS | slot
        transfer.handle = handle
        transfer.owner = owner
        transfer.size_bytes = size_bytes
        transfer.operations = operations
        transfer.path = path
        transfer.hop = 0
        transfer.least = later(moment(now_ns), self.alone(path, size_bytes, operations))
        self.started += 1
        self.under_way += 1
        self.enter(slot)
        self.admit()
        self.advance(now_ns)
        return handle

    cdef int64_t next_ns(self) noexcept nogil:
        """When something changes next: a transfer ends, or begins to flow. NEVER_NS when nothing will."""
        cdef int64_t next_ns = due(self.next_change())
        return min(next_ns, round_up(self.done.entries[0].key)) if self.done.count else next_ns

    cdef u128 next_change(self) noexcept nogil:
        cdef u128 at = FAR
        if self.delayed.count:
            at = min(at, self.delayed.entries[0].key)
        if self.ends.count:
            at = min(at, self.ends.entries[0].key)
        return at

    cdef int advance(self, int64_t now_ns) except -1 nogil:
        """Let everything happen that happens up to ``now_ns``."""
        cdef u128 at
        if debug_build and now_ns < self.now_ns:
            with gil:
                raise AssertionError(f"transfers were asked for {now_ns:,} ns when it was {self.now_ns:,} ns")
        self.now_ns = now_ns
        at = self.next_change()
        while at < FAR and due(at) <= now_ns:
            self.reach(at)
            # At one moment, what ends makes room for what begins.
            if self.ends.count and self.ends.entries[0].key == at:
                self.end_flow(self.legs[self.ends.entries[0].item].flowing.entries[0].item)
            else:
                self.end_delay(self.delayed.entries[0].item)
            at = self.next_change()
        return 0

    cdef int pop_done(self, int64_t* handle, int64_t* owner, int64_t* end_ns) except -1 nogil:
        """Take one transfer that has ended by now, in the order of end, then of start. Returns 1, or 0 if
        there is none."""
        cdef int32_t slot
        if self.done.count == 0 or round_up(self.done.entries[0].key) > self.now_ns:
            return 0
        slot = self.done.entries[0].item
        handle[0] = self.transfers[slot].handle
        owner[0] = self.transfers[slot].owner
        end_ns[0] = round_up(self.done.entries[0].key)
        heap_remove(&self.done, self.places, slot)
        self.drop_slot(slot)
        return 1

    cdef int64_t moved(self, int64_t handle, int64_t now_ns) noexcept nogil:
        """Bytes that have arrived at the end of the path, as of ``now_ns``, to which ``advance`` has come.
        -1 for a transfer that has been popped or cancelled."""
        cdef Transfer* transfer = self.find(handle)
        if transfer == NULL:
            return -1
        if transfer.state == ENDED:
            return transfer.size_bytes
        if transfer.state != FLOWING or transfer.hop + 1 < self.paths[transfer.path].leg_count:
            return 0
        return self.flowed(transfer, moment(now_ns))

    cdef int cancel(self, int64_t handle, int64_t now_ns) except -1 nogil:
        """Stop a transfer; what it moved stays counted. Returns 1, or 0 if it has ended already."""
        cdef Transfer* transfer
        cdef int32_t slot = <int32_t>(handle & SLOT_MASK)
        self.advance(now_ns)
        self.reach(moment(now_ns))
        transfer = self.find(handle)
        if transfer == NULL or transfer.state == ENDED:
            return 0
        if transfer.state == DELAYED:
            heap_remove(&self.delayed, self.places, slot)
        elif transfer.state == FLOWING:
            self.cease(slot, self.flowed(transfer, self.reached), self.reached)
        self.release(transfer)
        self.under_way -= 1
        self.drop_slot(slot)   # queues drop its handle when that comes to their front
        self.admit()
        self.advance(now_ns)
        return 1

    # From here on all happens at the moment ``reached``.

    cdef int end_delay(self, int32_t slot) except -1 nogil:
        heap_remove(&self.delayed, self.places, slot)
        if self.transfers[slot].size_bytes == 0:
            return self.pass_on(slot)
        self.transfers[slot].state = FLOWING
        return self.join(slot, self.reached)

    cdef int end_flow(self, int32_t slot) except -1 nogil:
        self.cease(slot, self.transfers[slot].size_bytes, self.reached)
        return self.pass_on(slot)

    cdef int pass_on(self, int32_t slot) except -1 nogil:
        """Leave a leg: for the next one, or for good."""
        cdef Transfer* transfer = &self.transfers[slot]
        self.release(transfer)
        if transfer.hop + 1 < self.paths[transfer.path].leg_count:
            transfer.hop += 1
            self.enter(slot)
        else:
            transfer.state = ENDED
            self.under_way -= 1
            heap_push(
                &self.done, self.places, moment(max(due(self.reached), round_up(transfer.least))), transfer.handle, slot
            )
        return self.admit()

    # What would be.

    cdef u128 alone(self, int32_t number, int64_t size_bytes, int64_t operations) noexcept nogil:
        """How long a transfer takes if it is the only one."""
        cdef Path* path = &self.paths[number]
        cdef Leg* leg
        cdef LinkState* link
        cdef u128 total = 0, flows
        cdef int32_t hop, i
        for hop in range(path.leg_count):
            leg = &self.legs[path.legs[hop]]
            flows = 0
            for i in range(leg.link_count):
                link = &self.at[leg.links[i]]
                total = later(total, moment(waves_ns(link, operations)))
                flows = max(flows, time_for(amount(size_bytes), link.bandwidth, 1, False))
            total = later(total, flows)
        return total

    cdef int64_t estimate_ns(
        self, int32_t path, int64_t size_bytes, int64_t operations, int64_t now_ns
    ) noexcept nogil:
        """How long a transfer would take from ``now_ns`` on, to which ``advance`` has come, if shares stayed as
        they would be with it: if nothing more came or went. Where it had to wait for a turn, all before it
        go first."""
        cdef Leg* leg
        cdef LinkState* link
        cdef u128 waits, flows, total = 0
        cdef int32_t hop, i
        cdef uint64_t sharers
        for hop in range(self.paths[path].leg_count):
            leg = &self.legs[self.paths[path].legs[hop]]
            waits = flows = 0
            for i in range(leg.link_count):
                link = &self.at[leg.links[i]]
                total = later(total, moment(waves_ns(link, operations)))
                sharers = link.in_flight + 1
                if link.limit and (link.waiting or link.in_flight >= link.limit):
                    waits = max(waits, self.turn(link, moment(now_ns)))
                    sharers = 1
                flows = max(flows, time_for(amount(size_bytes), link.bandwidth, sharers, True))
            total = later(total, later(waits, flows))
        return round_up(total)

    cdef void observe(self, int64_t now_ns) noexcept with gil:
        """Bring the counters of the links to ``now_ns``, to which ``advance`` has come."""
        self.observe_at(max(self.reached, moment(now_ns)))

    # The same for Python, at times that only move forward.

    def begin(self, int32_t path, int64_t size_bytes, *, int64_t operations=1, int64_t owner=0, at_ns=None):
        """Start a transfer at ``at_ns`` (None: now); its handle."""
        if not 0 <= path < self.path_count:
            raise ArgumentError(f"path {path} is none of the {self.path_count} paths")
        return self.start(path, size_bytes, operations, owner, self.not_before_now(at_ns))

    def stop(self, int64_t handle, *, at_ns=None):
        """Cancel a transfer at ``at_ns`` (None: now); whether it had not ended before."""
        cdef bint stopped = self.cancel(handle, self.not_before_now(at_ns))
        self.observe(self.now_ns)
        return stopped

    def run_until(self, int64_t time_ns):
        """Go on to this time; (owner, end in ns) of all that have ended and not been told of."""
        cdef int64_t handle, owner, end_ns
        cdef list ended = []
        self.advance(self.not_before_now(time_ns))
        while self.pop_done(&handle, &owner, &end_ns):
            ended.append((owner, end_ns))
        self.observe(time_ns)
        return ended

    def run(self):
        """Go on until nothing is under way; the same."""
        cdef list ended = self.run_until(self.now_ns)
        while self.next_ns() < NEVER_NS:
            ended += self.run_until(self.next_ns())
        return ended

    def moved_bytes(self, int64_t handle):
        """Bytes that have arrived by now; None for a transfer that is no more."""
        cdef int64_t moved = self.moved(handle, self.now_ns)
        return None if moved < 0 else moved

    def estimate(self, int32_t path, int64_t size_bytes, *, int64_t operations=1):
        """How long a transfer would take that started now, in ns."""
        return self.estimate_ns(path, size_bytes, operations, self.now_ns)

    @property
    def next_change_ns(self):
        """When something changes next; None when nothing will."""
        return None if self.next_ns() == NEVER_NS else self.next_ns()

    cdef int64_t not_before_now(self, time_ns) except -1:
        if time_ns is None:
            return self.now_ns
        if time_ns < self.now_ns:
            raise ArgumentError(f"{time_ns:,} ns is past: it is {self.now_ns:,} ns")
        return time_ns
