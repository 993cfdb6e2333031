"""Sums by distance: from the distances of blocks to what hits at each capacity.

A block at distance d hits in every cache of more than d blocks, so what it weighs is added once, at
d, and the figures at capacity C are the sums below C. Distances come in runs that rise by one;
:class:`ExactSums` keeps differences, so a run costs two additions however long it is, and takes 64
bytes a distance that occurs. :class:`GroupSums` also keeps the figures of groups of requests, at a few
given capacities.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.hashing cimport mulhi64
from kvbench.memory cimport no_memory
from kvbench.prefetch cimport prefetch
from kvbench.replays.stack cimport Touch

FIGURES = ("hit_blocks", "tail_blocks", "tail_tokens", "any_requests", "resident_blocks", "block_shares", "token_shares")
"""What is summed: hit blocks; those of them that are partial, and their tokens; requests with a hit;
blocks at a distance below the capacity, those behind a gap included; sums over requests of hit
blocks / blocks and of hit tokens / input tokens."""

cdef enum:
    HIT, TAIL, TAIL_TOKENS, ANY, RESIDENT, BLOCK_SHARES, TOKEN_SHARES
    FIGURE_COUNT
    CHUNK = 4096

cdef double SHARE_UNIT = 2.0 ** -32
cdef double LOW_UNIT = 2.0 ** -64


cdef Share share_of(uint64_t part, uint64_t whole) noexcept nogil:
    """part / whole, for numbers below 2^32 and a share of at most 1; the rest is cut off."""
    cdef Share share
    share.high = (part << 32) // whole
    part = (part << 32) % whole
    share.low = (part << 32) // whole << 32
    part = (part << 32) % whole
    share.low |= (part << 32) // whole
    return share


cdef inline void add_share(Share* sum, const Share* share, int64_t times) noexcept nogil:
    # Modulo 2^128, so subtracting is adding a negative number of times.
    cdef uint64_t factor = <uint64_t>times
    cdef uint64_t low = share.low * factor
    cdef uint64_t high = share.high * factor + mulhi64(share.low, factor)
    if times < 0:
        high -= share.low
    sum.low += low
    sum.high += high + (sum.low < low)


cdef inline double share_value(const Share* share) noexcept nogil:
    return (<double>share.high + <double>share.low * LOW_UNIT) * SHARE_UNIT


cdef class Sums:
    """Interface of both forms. Weights are those of one request's full blocks."""

    cdef void set_group(self, int64_t group) noexcept nogil:
        """Name the group of the requests that follow."""

    cdef int add_hits(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil:
        """Full blocks that hit at distance, distance + 1, …: one each."""
        return 0

    cdef int add_level(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil:
        """Full blocks that all hit at ``distance``."""
        return 0

    cdef int add_tail(self, int64_t distance, int64_t tokens, const Weights* weights) except -1 nogil:
        """A partial block of ``tokens``; ``weights`` are its own."""
        return 0

    cdef int add_resident(self, int64_t distance, int64_t blocks) except -1 nogil:
        """Blocks, hit or not, at distance, distance + 1, …: one each."""
        return 0

    cdef int add_first(self, int64_t distance) except -1 nogil:
        """A request whose first block is at ``distance``."""
        return 0

    cdef int add_lone(self, const Touch* touches, int64_t n, const Weights* weights) except -1 nogil:
        """Requests of one block that is all they ask for, at a negative distance if it misses. ``weights``
        are the same at each call."""
        cdef int64_t i
        for i in range(n):
            if touches[i].distance >= 0:
                self.add_resident(touches[i].distance, 1)
                self.add_first(touches[i].distance)
                self.add_hits(touches[i].distance, 1, weights)
        return 0


@cython.final
cdef class ExactSums(Sums):
    """Sums of every distance; all integers, and exact."""

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.chunk_room):
            free(self.chunks[i])
            free(self.lone[i])
        free(self.chunks)
        free(self.lone)

    cdef Cell* cell(self, int64_t distance) except NULL nogil:
        cdef int64_t chunk = distance // CHUNK
        if distance >= self.end:
            self.end = distance + 1
        if chunk >= self.chunk_room:
            self.fit(chunk)
        if self.chunks[chunk] == NULL:
            self.chunks[chunk] = <Cell*>calloc(CHUNK, sizeof(Cell))
            if self.chunks[chunk] == NULL:
                no_memory("sums by distance", CHUNK)
        return &self.chunks[chunk][distance % CHUNK]

    cdef int fit(self, int64_t chunk) except -1 nogil:
        cdef int64_t room = 2 * chunk + 16
        cdef Cell** chunks = <Cell**>realloc(self.chunks, room * sizeof(Cell*))
        cdef int64_t** lone
        if chunks == NULL:
            no_memory("sums by distance", room)
        self.chunks = chunks
        lone = <int64_t**>realloc(self.lone, room * sizeof(int64_t*))
        if lone == NULL:
            no_memory("sums by distance", room)
        self.lone = lone
        memset(chunks + self.chunk_room, 0, (room - self.chunk_room) * sizeof(Cell*))
        memset(lone + self.chunk_room, 0, (room - self.chunk_room) * sizeof(int64_t*))
        self.chunk_room = room
        return 0

    cdef Cell* peek(self, int64_t distance) noexcept nogil:
        """The cell of a distance below ``end``, or NULL where its chunk is empty."""
        cdef Cell* chunk = self.chunks[distance // CHUNK]
        return NULL if chunk == NULL else &chunk[distance % CHUNK]

    cdef int add_hits(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil:
        cdef Cell* cell = self.cell(distance)
        cell.hits += 1
        add_share(&cell.block_share, &weights.block, 1)
        add_share(&cell.token_share, &weights.token, 1)
        cell = self.cell(distance + blocks)
        cell.hits -= 1
        add_share(&cell.block_share, &weights.block, -1)
        add_share(&cell.token_share, &weights.token, -1)
        return 0

    cdef int add_level(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil:
        cdef Cell* cell = self.cell(distance)
        cell.hits += blocks
        add_share(&cell.block_share, &weights.block, blocks)
        add_share(&cell.token_share, &weights.token, blocks)
        cell = self.cell(distance + 1)
        cell.hits -= blocks
        add_share(&cell.block_share, &weights.block, -blocks)
        add_share(&cell.token_share, &weights.token, -blocks)
        return 0

    cdef int add_tail(self, int64_t distance, int64_t tokens, const Weights* weights) except -1 nogil:
        cdef Cell* cell
        self.add_level(distance, 1, weights)
        cell = self.cell(distance)
        cell.tail_hits += 1
        cell.tail_tokens += tokens
        return 0

    cdef int add_resident(self, int64_t distance, int64_t blocks) except -1 nogil:
        self.cell(distance).resident += 1
        self.cell(distance + blocks).resident -= 1
        return 0

    cdef int add_first(self, int64_t distance) except -1 nogil:
        self.cell(distance).first_hits += 1
        return 0

    cdef int add_lone(self, const Touch* touches, int64_t n, const Weights* weights) except -1 nogil:
        # They all weigh the same, so a count tells all of them: 8 bytes a distance instead of two cells.
        cdef int64_t i
        self.lone_weights = weights[0]
        for i in range(n):
            if 0 <= touches[i].distance < self.end:
                prefetch(self.lone[touches[i].distance // CHUNK] + touches[i].distance % CHUNK)
        for i in range(n):
            if touches[i].distance >= 0:
                self.lone_at(touches[i].distance)[0] += 1
        return 0

    cdef int64_t* lone_at(self, int64_t distance) except NULL nogil:
        cdef int64_t chunk = distance // CHUNK
        if distance >= self.end:
            self.end = distance + 1
        if chunk >= self.chunk_room:
            self.fit(chunk)
        if self.lone[chunk] == NULL:
            self.lone[chunk] = <int64_t*>calloc(CHUNK, sizeof(int64_t))
            if self.lone[chunk] == NULL:
                no_memory("sums by distance", CHUNK)
        return &self.lone[chunk][distance % CHUNK]

    cdef int64_t peek_lone(self, int64_t distance) noexcept nogil:
        """How many lone blocks were at a distance below ``end``."""
        cdef int64_t* chunk = self.lone[distance // CHUNK]
        return 0 if chunk == NULL else chunk[distance % CHUNK]

    def read(self, const int64_t[::1] capacities, double[:, ::1] out):
        """Write the FIGURES of each capacity (rising) to a row of ``out``."""
        cdef int64_t i, at = 0, stop
        cdef int64_t figures[5]
        cdef int64_t lone
        cdef Cell shares, density
        cdef Cell* cell
        if out.shape[0] != capacities.shape[0] or out.shape[1] != FIGURE_COUNT:
            raise ValueError("out has another shape than capacities × FIGURES")
        memset(figures, 0, sizeof(figures))
        memset(&shares, 0, sizeof(shares))
        memset(&density, 0, sizeof(density))
        for i in range(capacities.shape[0]):
            if i and capacities[i] < capacities[i - 1]:
                raise ValueError("capacities must rise")
            stop = min(capacities[i], self.end)
            while at < stop:
                cell = self.peek(at)
                if cell != NULL:
                    density.hits += cell.hits
                    density.resident += cell.resident
                    add_share(&density.block_share, &cell.block_share, 1)
                    add_share(&density.token_share, &cell.token_share, 1)
                    figures[TAIL] += cell.tail_hits
                    figures[TAIL_TOKENS] += cell.tail_tokens
                    figures[ANY] += cell.first_hits
                lone = self.peek_lone(at)
                figures[HIT] += density.hits + lone
                figures[RESIDENT] += density.resident + lone
                figures[ANY] += lone
                add_share(&shares.block_share, &self.lone_weights.block, lone)
                add_share(&shares.token_share, &self.lone_weights.token, lone)
                add_share(&shares.block_share, &density.block_share, 1)
                add_share(&shares.token_share, &density.token_share, 1)
                at += 1
            out[i, HIT] = <double>figures[HIT]
            out[i, TAIL] = <double>figures[TAIL]
            out[i, TAIL_TOKENS] = <double>figures[TAIL_TOKENS]
            out[i, ANY] = <double>figures[ANY]
            out[i, RESIDENT] = <double>figures[RESIDENT]
            out[i, BLOCK_SHARES] = share_value(&shares.block_share)
            out[i, TOKEN_SHARES] = share_value(&shares.token_share)

    def mark_changes(self, unsigned char[::1] changes):
        """Set ``changes[d]`` to 1 where capacity d + 1 has other figures than capacity d, else to 0;
        for d below ``end``, of which there are as many as ``changes`` is long."""
        cdef int64_t at
        cdef int64_t hits = 0, resident = 0
        cdef Cell* cell
        if changes.shape[0] != self.end:
            raise ValueError(f"changes has {changes.shape[0]} entries, not {self.end}")
        for at in range(self.end):
            cell = self.peek(at)
            if cell != NULL:
                hits += cell.hits
                resident += cell.resident
            changes[at] = hits != 0 or resident != 0 or self.peek_lone(at) != 0

    def distance_counts(self, int64_t[::1] counts):
        """Add the number of blocks at each distance to ``counts[bit length of the distance]``."""
        cdef int64_t at, bits = 0, resident = 0
        cdef Cell* cell
        if counts.shape[0] != 64:
            raise ValueError(f"counts has {counts.shape[0]} entries, not 64")
        for at in range(self.end):
            while at >> bits:
                bits += 1
            cell = self.peek(at)
            if cell != NULL:
                resident += cell.resident
            counts[bits] += resident + self.peek_lone(at)


@cython.final
cdef class GroupSums(Sums):
    """``all``, and the sums of each group at the rising capacities ``grid`` alone, in floating point."""

    def __cinit__(self, ExactSums all not None, const int64_t[::1] grid, int64_t groups):
        cdef int64_t i
        if groups < 1:
            raise ValueError("there is at least one group")
        self.all = all
        self.size = grid.shape[0]
        self.groups = groups
        self.grid = <int64_t*>calloc(self.size + 1, sizeof(int64_t))
        # Of each group, the first half holds what counts at one capacity, the second what counts
        # from it on.
        self.sums = <double*>calloc(groups * 2 * FIGURE_COUNT * (self.size + 1), sizeof(double))
        if self.grid == NULL or self.sums == NULL:
            no_memory("sums of groups", groups * self.size)
        self.mine = self.sums
        for i in range(self.size):
            if i and grid[i] <= grid[i - 1]:
                raise ValueError("the grid must rise")
            self.grid[i] = grid[i]

    def __dealloc__(self):
        free(self.grid)
        free(self.sums)

    cdef void set_group(self, int64_t group) noexcept nogil:
        self.mine = self.sums + group * 2 * FIGURE_COUNT * (self.size + 1)

    cdef int64_t above(self, int64_t distance) noexcept nogil:
        """The first entry of the grid that is greater than ``distance``."""
        cdef int64_t low = 0, high = self.size, middle
        while low < high:
            middle = (low + high) // 2
            if self.grid[middle] > distance:
                high = middle
            else:
                low = middle + 1
        return low

    cdef void spread(self, int figure, int64_t distance, int64_t blocks, double weight) noexcept nogil:
        cdef double* at_one = self.mine + figure * (self.size + 1)
        cdef double* from_here = at_one + FIGURE_COUNT * (self.size + 1)
        cdef int64_t i = self.above(distance)
        while i < self.size and self.grid[i] < distance + blocks:
            at_one[i] += weight * <double>(self.grid[i] - distance)
            i += 1
        from_here[i] += weight * <double>blocks

    cdef void spread_all(self, int64_t distance, int64_t blocks, const Weights* weights) noexcept nogil:
        self.spread(HIT, distance, blocks, 1)
        self.spread(BLOCK_SHARES, distance, blocks, share_value(&weights.block))
        self.spread(TOKEN_SHARES, distance, blocks, share_value(&weights.token))

    cdef int add_hits(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil:
        self.spread_all(distance, blocks, weights)
        return self.all.add_hits(distance, blocks, weights)

    cdef int add_level(self, int64_t distance, int64_t blocks, const Weights* weights) except -1 nogil:
        self.spread(HIT, distance, 1, <double>blocks)
        self.spread(BLOCK_SHARES, distance, 1, <double>blocks * share_value(&weights.block))
        self.spread(TOKEN_SHARES, distance, 1, <double>blocks * share_value(&weights.token))
        return self.all.add_level(distance, blocks, weights)

    cdef int add_tail(self, int64_t distance, int64_t tokens, const Weights* weights) except -1 nogil:
        self.spread_all(distance, 1, weights)
        self.spread(TAIL, distance, 1, 1)
        self.spread(TAIL_TOKENS, distance, 1, <double>tokens)
        return self.all.add_tail(distance, tokens, weights)

    cdef int add_resident(self, int64_t distance, int64_t blocks) except -1 nogil:
        self.spread(RESIDENT, distance, blocks, 1)
        return self.all.add_resident(distance, blocks)

    cdef int add_first(self, int64_t distance) except -1 nogil:
        self.spread(ANY, distance, 1, 1)
        return self.all.add_first(distance)

    def read_group(self, int64_t group, double[:, ::1] out):
        """Write the FIGURES of a group at each capacity of the grid to a row of ``out``."""
        cdef int64_t i, width = self.size + 1
        cdef int figure
        cdef double running
        if not 0 <= group < self.groups:
            raise ValueError(f"group {group} is not one of {self.groups}")
        if out.shape[0] != self.size or out.shape[1] != FIGURE_COUNT:
            raise ValueError("out has another shape than grid × FIGURES")
        self.set_group(group)
        for figure in range(FIGURE_COUNT):
            running = 0
            for i in range(self.size):
                running += self.mine[(FIGURE_COUNT + figure) * width + i]
                out[i, figure] = running + self.mine[figure * width + i]
