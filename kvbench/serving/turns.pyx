"""Whose turn it is at links that take so many transfers at a time.

Each link with a limit has a queue, in the order in which transfers asked for it. A transfer that passes
several at once takes its turn when it is the first in all their queues and all have room, so nobody is
overtaken at any link. The one that asked first of all is the first in all its queues, and those in flight need
nothing more, so somebody always goes on.

All of it happens at the moment ``reached``.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kvbench.memory cimport no_memory
from kvbench.serving.clock cimport NEVER_NS
from kvbench.serving.fixed cimport MOST_BYTES, amount, before, later, moment, time_for, u128
from kvbench.serving.flows cimport Flows, Leg, LinkState, Queue, Transfer, larger
from kvbench.serving.heap cimport heap_push


cdef int append(Queue* queue, int64_t handle) except -1 nogil:
    cdef int64_t i, room = 2 * queue.room + 16
    cdef int64_t* handles
    if queue.count == queue.room:
        handles = <int64_t*>larger(NULL, room, sizeof(int64_t))
        for i in range(queue.count):
            handles[i] = queue.handles[(queue.first + i) % queue.room]
        free(queue.handles)
        queue.handles = handles
        queue.room = room
        queue.first = 0
    queue.handles[(queue.first + queue.count) % queue.room] = handle
    queue.count += 1
    return 0


cdef inline void drop_first(Queue* queue) noexcept nogil:
    queue.first = queue.first + 1 if queue.first + 1 < queue.room else 0
    queue.count -= 1


cdef int64_t waves_ns(const LinkState* link, int64_t operations) noexcept nogil:
    """The latency of so many operations: it is paid once for as many as go at a time."""
    cdef int64_t waves = (operations - 1) // link.concurrency + 1 if link.concurrency else 1
    if operations == 0 or link.latency_ns == 0:
        return 0
    return waves * link.latency_ns if waves <= NEVER_NS // link.latency_ns else NEVER_NS


cdef class Turns(Flows):
    """Who waits for which link, and who is in flight."""

    def __cinit__(self, list links):
        self.open_links = <int32_t*>calloc(max(self.link_count, 1), sizeof(int32_t))
        if self.open_links == NULL:
            no_memory("transfers", self.link_count)

    def __dealloc__(self):
        free(self.open_links)
        free(self.delayed.entries)

    cdef void reach(self, u128 at) noexcept nogil:
        if before(self.reached, at):
            self.reached = at

    cdef Transfer* find(self, int64_t handle) noexcept nogil:
        """The transfer with this handle; NULL if it has been popped or cancelled."""
        cdef int64_t slot = handle & SLOT_MASK
        return &self.transfers[slot] if slot < self.used and self.transfers[slot].handle == handle else NULL

    cdef int enter(self, int32_t slot) except -1 nogil:
        """Ask for the links of the next leg, behind those who asked before."""
        cdef Transfer* transfer = &self.transfers[slot]
        cdef Leg* leg = self.leg_of(transfer)
        cdef LinkState* link
        cdef bint limited = False
        cdef int32_t i
        transfer.state = WAITING
        for i in range(leg.link_count):
            link = &self.at[leg.links[i]]
            link.waiting += 1
            link.ahead_bytes += transfer.size_bytes
            link.ahead_latency_ns += waves_ns(link, transfer.operations)
            if link.limit:
                limited = True
                append(&link.queue, transfer.handle)
                self.look_again(leg.links[i])
        return 0 if limited else self.take_turn(slot)

    cdef int admit(self) except -1 nogil:
        """Let those take their turn who are the first in all queues of their leg, at links that have room."""
        cdef LinkState* link
        cdef int64_t handle
        while self.open_count:
            self.open_count -= 1
            link = &self.at[self.open_links[self.open_count]]
            link.open = False
            handle = self.first_waiting(link)
            if handle >= 0 and self.has_turn(handle):
                self.take_turn(<int32_t>(handle & SLOT_MASK))
        return 0

    cdef void look_again(self, int32_t number) noexcept nogil:
        """Somebody who waits for this link may have a turn."""
        if not self.at[number].open:
            self.at[number].open = True
            self.open_links[self.open_count] = number
            self.open_count += 1

    cdef int64_t first_waiting(self, LinkState* link) noexcept nogil:
        """Handle of the first in the queue; NO_HANDLE if there is none."""
        cdef Queue* queue = &link.queue
        cdef int64_t handle
        while queue.count:
            handle = queue.handles[queue.first]
            if self.find(handle) != NULL:
                return handle
            drop_first(queue)
        return NO_HANDLE

    cdef bint has_turn(self, int64_t handle) noexcept nogil:
        cdef Leg* leg = self.leg_of(self.find(handle))
        cdef LinkState* link
        cdef int32_t i
        for i in range(leg.link_count):
            link = &self.at[leg.links[i]]
            if link.limit and (link.in_flight >= link.limit or self.first_waiting(link) != handle):
                return False
        return True

    cdef int take_turn(self, int32_t slot) except -1 nogil:
        """Be in flight: at first, that is to wait for the latency."""
        cdef Transfer* transfer = &self.transfers[slot]
        cdef Leg* leg = self.leg_of(transfer)
        cdef LinkState* link
        cdef u128 end = self.reached
        cdef int64_t latency_ns
        cdef int32_t i
        for i in range(leg.link_count):
            link = &self.at[leg.links[i]]
            latency_ns = waves_ns(link, transfer.operations)
            end = later(end, moment(latency_ns))
            link.waiting -= 1
            link.ahead_latency_ns -= latency_ns
            link.latency_sum_ns += latency_ns
            link.operations += transfer.operations
            link.in_flight += 1
            link.most_in_flight = max(link.most_in_flight, link.in_flight)
            if link.limit:
                drop_first(&link.queue)
                self.look_again(leg.links[i])
        for i in range(leg.link_count):
            self.at[leg.links[i]].delayed_until = end
        transfer.state = DELAYED
        return heap_push(&self.delayed, self.places, end, transfer.handle, slot)

    cdef void release(self, const Transfer* transfer) noexcept nogil:
        """Give back the links of the leg, or the place in their queues."""
        cdef Leg* leg = self.leg_of(transfer)
        cdef LinkState* link
        cdef int32_t i
        for i in range(leg.link_count):
            link = &self.at[leg.links[i]]
            link.ahead_bytes -= transfer.size_bytes
            if transfer.state == WAITING:
                link.waiting -= 1
                link.ahead_latency_ns -= waves_ns(link, transfer.operations)
            else:
                link.in_flight -= 1
            if link.limit:
                self.look_again(leg.links[i])

    cdef u128 turn(self, const LinkState* link, u128 at) noexcept nogil:
        """How long it takes until all who wait or are in flight have left a link with a limit."""
        cdef u128 delays = moment(link.ahead_latency_ns // link.limit)
        cdef u128 ahead = amount(min(link.ahead_bytes, MOST_BYTES))
        cdef u128 moved = self.moving(link, at)
        if before(at, link.delayed_until):
            delays = later(delays, link.delayed_until - at)
        return later(delays, time_for(ahead - moved if before(moved, ahead) else 0, link.bandwidth, 1, True))
