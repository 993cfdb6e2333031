"""How fast transfers flow: equal shares of each link, recomputed when one begins or ceases to flow.

A leg is a set of links that transfers pass at once. All that flow through one leg have the same rate:
the least over its links of bandwidth / (transfers flowing there). So the leg keeps one amount, the
progress that each of them makes, and a transfer ends when the progress since it began is its size:
the virtual time of processor sharing. Only a change of the rate needs arithmetic, and results do
not depend on how often anybody looks.

Progress is rounded down and ends are rounded up (fixed.pxd), so no link ever moves more than its
bandwidth allows.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.memory cimport no_memory
from kvbench.serving.fixed cimport (
    amount, amount_in, before, due, later, time_for, transfer_ns, u128, whole_bytes,
)
from kvbench.serving.heap cimport heap_change, heap_push, heap_remove
from kvbench.serving.link cimport Link

from kvbench.errors import ConfigError


cdef void* larger(void* array, int64_t count, size_t size) except NULL nogil:
    """The array with room for ``count`` entries of ``size`` bytes."""
    cdef void* moved = realloc(array, count * size)
    if moved == NULL:
        no_memory("transfers", count)
    return moved


cdef inline u128 progress_at(const Leg* leg, u128 at) noexcept nogil:
    """What each of those flowing through the leg has moved by then, at the rate that it has now."""
    return leg.progress + amount_in(at - leg.settled, leg.bandwidth, leg.sharers) if before(leg.settled, at) else leg.progress


cdef inline void settle(Leg* leg, u128 at) noexcept nogil:
    leg.progress = progress_at(leg, at)
    if before(leg.settled, at):
        leg.settled = at


cdef class Flows:
    """The links, the paths made of them, and what flows over these."""

    def __cinit__(self, list links):
        cdef int32_t i
        cdef Link link
        self.links = links
        self.link_count = len(links)
        self.leg_numbers = {}
        self.free_slot = -1
        self.at = <LinkState*>calloc(max(self.link_count, 1), sizeof(LinkState))
        if self.at == NULL:
            no_memory("transfers", self.link_count)
        for i, link in enumerate(links):
            self.at[i].bandwidth = link.bandwidth_bytes_per_s
            self.at[i].latency_ns = link.latency_ns
            self.at[i].concurrency = link.concurrency
            self.at[i].limit = 1 if link.sharing == "fifo" else <int32_t>min(link.concurrency, <int64_t>0x7fffffff)

    def __dealloc__(self):
        cdef int32_t i
        if self.at != NULL:
            for i in range(self.link_count):
                free(self.at[i].queue.handles)
                free(self.at[i].legs)
        for i in range(self.leg_count):
            free(self.legs[i].flowing.entries)
        free(self.at)
        free(self.legs)
        free(self.leg_places)
        free(self.paths)
        free(self.transfers)
        free(self.places)
        free(self.ends.entries)

    def add_path(self, links, *, bint pipelined=True):
        """Number of a path over these links, by their numbers.

        ``pipelined``: a transfer is on all of them at once; its latency is their sum, its rate the least
        of its shares. Else it is stored and forwarded, one link after the other.
        Raises ConfigError for no links, too many, unknown ones, or one twice at once.
        """
        cdef Path path
        cdef int32_t number
        cdef tuple part
        numbers = tuple(links)
        if not 0 < len(numbers) <= MOST_LINKS or not all(0 <= number < self.link_count for number in numbers):
            raise ConfigError(f"a path passes 1 to {MOST_LINKS} of the {self.link_count} links, not {list(numbers)}")
        if pipelined and len(set(numbers)) < len(numbers):
            names = "+".join(self.links[number].name for number in numbers)
            raise ConfigError(f"the path {names} passes a link twice at once; name it once, or let the path be serial")
        memset(&path, 0, sizeof(Path))
        for part in [numbers] if pipelined else [(number,) for number in numbers]:
            path.legs[path.leg_count] = self.add_leg(part)
            path.leg_count += 1
        self.paths = <Path*>larger(self.paths, self.path_count + 1, sizeof(Path))
        self.paths[self.path_count] = path
        self.path_count += 1
        return self.path_count - 1

    cdef int32_t add_leg(self, tuple links) except -1:
        """Number of the leg over these links; paths share it."""
        cdef int32_t link
        cdef LinkState* state
        cdef Leg leg
        if links in self.leg_numbers:
            return self.leg_numbers[links]
        memset(&leg, 0, sizeof(Leg))
        for link in links:
            state = &self.at[link]
            state.legs = <int32_t*>larger(state.legs, state.leg_count + 1, sizeof(int32_t))
            state.legs[state.leg_count] = self.leg_count
            state.leg_count += 1
            leg.links[leg.link_count] = link
            leg.link_count += 1
        self.leg_places = <int32_t*>larger(self.leg_places, self.leg_count + 1, sizeof(int32_t))
        self.leg_places[self.leg_count] = -1
        self.legs = <Leg*>larger(self.legs, self.leg_count + 1, sizeof(Leg))
        self.legs[self.leg_count] = leg
        self.leg_numbers[links] = self.leg_count
        self.leg_count += 1
        return self.leg_count - 1

    cdef int32_t take_slot(self) except -1 nogil:
        """A free entry of the array of transfers."""
        cdef int32_t slot = self.free_slot
        cdef int32_t room
        if slot >= 0:
            self.free_slot = self.transfers[slot].next_free
            return slot
        if self.used == self.room:
            room = 2 * self.room + 64
            self.transfers = <Transfer*>larger(self.transfers, room, sizeof(Transfer))
            self.places = <int32_t*>larger(self.places, room, sizeof(int32_t))
            self.room = room
        self.used += 1
        return self.used - 1

    cdef void drop_slot(self, int32_t slot) noexcept nogil:
        self.transfers[slot].handle = -1
        self.transfers[slot].next_free = self.free_slot
        self.free_slot = slot

    cdef Leg* leg_of(self, const Transfer* transfer) noexcept nogil:
        """Where the transfer is on its path."""
        return &self.legs[self.paths[transfer.path].legs[transfer.hop]]

    cdef int join(self, int32_t slot, u128 at) except -1 nogil:
        """Begin to flow."""
        cdef Transfer* transfer = &self.transfers[slot]
        cdef Leg* leg = self.leg_of(transfer)
        if leg.flowing.count:
            settle(leg, at)
        else:
            leg.settled = at
        transfer.begun = leg.progress
        leg.begun_sum += transfer.begun
        heap_push(&leg.flowing, self.places, leg.progress + amount(transfer.size_bytes), transfer.handle, slot)
        return self.share(self.paths[transfer.path].legs[transfer.hop], 1, at)

    cdef int cease(self, int32_t slot, int64_t moved_bytes, u128 at) except -1 nogil:
        """Flow no longer, after so many bytes."""
        cdef Transfer* transfer = &self.transfers[slot]
        cdef Leg* leg = self.leg_of(transfer)
        cdef int32_t i
        settle(leg, at)
        leg.begun_sum -= transfer.begun
        heap_remove(&leg.flowing, self.places, slot)
        for i in range(leg.link_count):
            self.at[leg.links[i]].ended_bytes += moved_bytes
        return self.share(self.paths[transfer.path].legs[transfer.hop], -1, at)

    cdef int share(self, int32_t number, int32_t change, u128 at) except -1 nogil:
        """One more, or one fewer, flows through the leg: new rates for all legs that have a link in common."""
        cdef Leg* leg = &self.legs[number]
        cdef LinkState* link
        cdef int32_t i, k, other
        for i in range(leg.link_count):
            link = &self.at[leg.links[i]]
            if link.flowing == 0:
                link.busy_since = at
            link.flowing += change
            if link.flowing == 0:
                link.busy += at - link.busy_since
        for i in range(leg.link_count):
            link = &self.at[leg.links[i]]
            for k in range(link.leg_count):
                other = link.legs[k]
                if other != number and self.legs[other].flowing.count and self.choose_rate(&self.legs[other], at):
                    self.set_end(other)
        if leg.flowing.count:
            self.choose_rate(leg, at)
        return self.set_end(number)

    cdef bint choose_rate(self, Leg* leg, u128 at) noexcept nogil:
        """Let the leg flow at the rate that its links give now; True if that is another one."""
        cdef LinkState* link
        cdef uint64_t bandwidth = self.at[leg.links[0]].bandwidth
        cdef uint64_t sharers = self.at[leg.links[0]].flowing
        cdef int32_t i
        for i in range(1, leg.link_count):
            link = &self.at[leg.links[i]]
            if <u128>link.bandwidth * sharers < <u128>bandwidth * <u128>link.flowing:
                bandwidth = link.bandwidth
                sharers = link.flowing
        if bandwidth == leg.bandwidth and sharers == leg.sharers:
            return False
        settle(leg, at)
        leg.bandwidth = bandwidth
        leg.sharers = sharers
        return True

    cdef int set_end(self, int32_t number) except -1 nogil:
        """Find anew when the first of those flowing through the leg ends."""
        cdef Leg* leg = &self.legs[number]
        cdef u128 end = leg.settled
        if leg.flowing.count == 0:
            if self.leg_places[number] >= 0:
                heap_remove(&self.ends, self.leg_places, number)
            return 0
        if before(leg.progress, leg.flowing.entries[0].key):
            end = later(end, time_for(leg.flowing.entries[0].key - leg.progress, leg.bandwidth, leg.sharers, True))
        if self.leg_places[number] >= 0:
            heap_change(&self.ends, self.leg_places, number, end)
            return 0
        return heap_push(&self.ends, self.leg_places, end, number, number)

    cdef int64_t flowed(self, const Transfer* transfer, u128 at) noexcept nogil:
        """Bytes that a transfer has moved over the leg through which it flows."""
        return min(whole_bytes(progress_at(self.leg_of(transfer), at) - transfer.begun), transfer.size_bytes)

    cdef u128 moving(self, const LinkState* link, u128 at) noexcept nogil:
        """The amount that those who flow through a link now have moved there."""
        cdef Leg* leg
        cdef u128 moved = 0
        cdef int32_t k
        for k in range(link.leg_count if link.flowing else 0):
            leg = &self.legs[link.legs[k]]
            if leg.flowing.count:
                moved += progress_at(leg, at) * <u128>leg.flowing.count - leg.begun_sum
        return moved

    cdef void observe_at(self, u128 at) noexcept with gil:
        """Bring the counters of the links to the moment ``at``."""
        cdef Link link
        cdef LinkState* state
        cdef int32_t i
        for i, link in enumerate(self.links):
            state = &self.at[i]
            link.moved_bytes = state.ended_bytes + whole_bytes(self.moving(state, at))
            # Told like an end of a transfer: without what roundings added, but never less than the bytes need.
            link.busy_ns = max(
                due(state.busy + (at - state.busy_since if state.flowing else 0)),
                transfer_ns(link.moved_bytes, state.bandwidth),
            )
            link.operations = state.operations
            link.latency_sum_ns = state.latency_sum_ns
            link.in_flight = state.in_flight
            link.most_in_flight = state.most_in_flight
            link.waiting = state.waiting
