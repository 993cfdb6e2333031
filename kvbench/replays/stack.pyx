"""The LRU stack of a whole trace: for each block of a request, how many distinct blocks were touched
since its last touch.

A request is swept last block to first (semantics §5.1), so the state of an LRU cache of C blocks is
the top C of one stack, whatever C is, and a block is resident there exactly if its distance, the
number of distinct blocks above it, is less than C (Mattson et al., 1970).

Each touch takes the next position of a bit set; a block's bit stands where its last touch is, so
the distance of a block is the number of bits set after its own. A tree counts the bits of words: it
has 16 children a node, and each entry tells the bits of the siblings before it, so that a rank is one
load a level and a change four vector additions, neither with a branch to guess. The word that
is being filled enters the tree when it is full, so a touch costs the tree a change, not two.

Blocks that were swept together stay neighbours, so the work is done by runs of them
(:class:`Run`), not by block: one search of the tree a run, one bit operation for 64 blocks. What is
left for each block is to read and write its position. When the positions are used up, they are
numbered anew without the gaps, so memory grows with distinct blocks alone: 4 bytes and 8 × 3.5 bits
each, and 24 bytes for each request that touched one of the last positions.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from kvbench.memory cimport no_memory
from kvbench.prefetch cimport prefetch
from kvbench.replays.bits cimport add_after, below, popcount, up_to, word_mask

from kvbench.errors import PluginError

cdef enum:
    NEVER = 0xffffffff      # position of a block that was never touched
    FAN_BITS = 4
    FAN = 1 << FAN_BITS     # children of a node of the tree
    FIRST_POSITIONS = 1 << 16
    POSITIONS_A_BLOCK = 8   # positions a distinct block: one renumbering in seven touches of each
    MOST_BLOCKS = 0x7fffffff
    AHEAD = 16


cdef int stands_twice() except -1 nogil:
    with gil:
        raise PluginError(
            "a key stands twice in one request; a token database must give each block of a request its own key"
        )


@cython.final
cdef class Stack:
    """The stack. ``locate`` finds the runs of a request and changes nothing; ``place`` then puts the
    request on top."""

    def __cinit__(self):
        self.allot(FIRST_POSITIONS)
        self.clear_all()

    def __dealloc__(self):
        free(self.last)
        free(self.words)
        free(self.tree)
        free(self.sweeps)
        free(self.arrivals_ns)
        free(self.runs)

    cdef int know(self, int64_t ids) except -1 nogil:
        """Get ready for ids below ``ids``."""
        cdef int64_t known = max(ids, self.known + self.known // 2)
        cdef uint32_t* last
        if ids <= self.known:
            return 0
        if ids > MOST_BLOCKS:
            no_memory("stack", ids)
        last = <uint32_t*>realloc(self.last, known * sizeof(uint32_t))
        if last == NULL:
            no_memory("stack", known)
        memset(last + self.known, 0xff, (known - self.known) * sizeof(uint32_t))
        self.last = last
        self.known = known
        return 0

    cdef int locate(self, const int32_t* ids, int64_t n) except -1 nogil:
        """Find the runs of a request among the blocks that were touched before."""
        cdef const uint32_t* last = self.last
        cdef int64_t i = 0, j, stop, time, wanted
        cdef Run* run
        if n > self.run_room:
            self.fit_runs(n)
        self.run_count = 0
        while i < n:
            if i + AHEAD < n:
                prefetch(&last[ids[i + AHEAD]])
            if last[ids[i]] == NEVER:
                i += 1
                continue
            time = last[ids[i]]
            run = &self.runs[self.run_count]
            self.run_count += 1
            run.first = i
            run.time = time
            run.distance = self.distinct - self.rank(time)
            run.sweep = self.sweep_of(time)
            # A run ends with its sweep: all its blocks were last used by one request.
            stop = min(n, i + time - self.sweeps[run.sweep].start + 1)
            j = i + 1
            wanted = time - 1
            while j < stop and last[ids[j]] == wanted:
                j += 1
                wanted -= 1
            run.length = j - i
            i = j
        return 0

    cdef int place(self, const int32_t* ids, int64_t n, int64_t arrival_ns, int64_t serial) except -1 nogil:
        """Put the request, whose runs were located just before, on top of the stack. ``serial`` is its
        number, greater than those before."""
        cdef uint32_t* last = self.last
        cdef int64_t i = 0, k, stop
        cdef uint32_t time
        cdef Run* run
        if n == 0:
            return 0
        for k in range(self.run_count):
            run = &self.runs[k]
            self.clear_range(run.time - run.length + 1, run.time + 1)
        if self.clock + n > self.positions:
            self.compact(n)
        self.fit_sweeps(1)
        self.add_sweep(arrival_ns, serial)
        self.mark_start(self.sweep_count - 1, self.clock + n)
        time = <uint32_t>(self.clock + n)
        for k in range(self.run_count + 1):
            stop = self.runs[k].first if k < self.run_count else n
            while i < stop:
                if last[ids[i]] != NEVER:
                    return stands_twice()
                time -= 1
                last[ids[i]] = time
                self.distinct += 1
                i += 1
            if k < self.run_count:
                stop = i + self.runs[k].length
                while i < stop:
                    time -= 1
                    last[ids[i]] = time
                    i += 1
        self.append(n)
        return 0

    cdef int touch(self, const int32_t* ids, int64_t n, const int64_t* arrivals_ns, int64_t serial,
                   Touch* touches) except -1 nogil:
        """``locate`` and ``place`` for ``n`` requests of one block each, of which ``serial`` is the first.

        Without a search for runs, and without waiting for memory: what is found at the
        places that the blocks have beforehand is fetched for all, since few of them move meanwhile.
        """
        cdef uint32_t* last = self.last
        cdef uint32_t time
        cdef int64_t i
        if self.clock + n > self.positions:
            self.compact(n)
        self.fit_sweeps(n)
        for i in range(n):
            if last[ids[i]] != NEVER:
                prefetch(&self.arrivals_ns[self.sweep_of(last[ids[i]])])
        for i in range(n):
            time = last[ids[i]]
            if time == NEVER:
                touches[i].distance = -1
                self.distinct += 1
            else:
                touches[i].distance = self.distinct - self.rank(time)
                touches[i].last_ns = self.arrivals_ns[self.sweep_of(time)]
                self.clear_range(time, <int64_t>time + 1)
            last[ids[i]] = <uint32_t>self.clock
            self.add_sweep(arrivals_ns[i], serial + i)
            self.mark_start(self.sweep_count - 1, self.clock + 1)
            self.append(1)
        return 0

    cdef void expect(self, const int32_t* ids, int64_t n) noexcept nogil:
        """Fetch the positions of blocks that are touched soon."""
        cdef int64_t i
        for i in range(n):
            prefetch(&self.last[ids[i]])

    cdef int64_t after(self, int64_t serial) noexcept nogil:
        """How many blocks were last touched by requests with greater numbers."""
        cdef int64_t low = 0, high = self.sweep_count, middle
        while low < high:
            middle = (low + high) // 2
            if self.sweeps[middle].serial > serial:
                high = middle
            else:
                low = middle + 1
        if low == self.sweep_count:
            return 0
        return self.distinct - (self.rank(self.sweeps[low].start - 1) if self.sweeps[low].start > 0 else 0)

    cdef int64_t rank(self, int64_t position) noexcept nogil:
        """How many bits are set up to and at ``position``."""
        cdef int64_t at = position // 64
        cdef int64_t count = popcount(self.words[at].bits & up_to(position))
        cdef int level
        for level in range(self.depth):
            count += self.levels[level][at]
            at >>= FAN_BITS
        return count

    cdef int64_t sweep_of(self, int64_t time) noexcept nogil:
        """The sweep that made the touch at ``time``."""
        cdef Word* word = &self.words[time // 64]
        return word.started + popcount(word.starts & up_to(time)) - 1

    cdef void mark_start(self, int64_t index, int64_t end) noexcept nogil:
        """Note where a sweep starts, and in all words that begin before its ``end`` how many sweeps started before."""
        cdef int64_t start = self.sweeps[index].start
        cdef int64_t at = start // 64
        if start % 64 == 0:
            self.words[at].started = <uint32_t>index
            self.words[at].starts = 0
        self.words[at].starts |= <uint64_t>1 << (start % 64)
        for at in range(at + 1, (end + 63) // 64):
            self.words[at].started = <uint32_t>(index + 1)
            self.words[at].starts = 0

    cdef void count_word(self, int64_t at, int32_t change) noexcept nogil:
        """Tell the tree that a word has ``change`` bits more."""
        cdef int level
        for level in range(self.depth):
            add_after(self.levels[level] + (at & ~<int64_t>(FAN - 1)), at & (FAN - 1), change)
            at >>= FAN_BITS

    cdef void append(self, int64_t n) noexcept nogil:
        """Set the bits of the next ``n`` positions."""
        cdef int64_t stop = self.clock + n
        cdef int64_t at
        while self.clock < stop:
            at = self.clock // 64
            self.words[at].bits |= word_mask(self.clock, stop)
            self.clock = min(stop, (at + 1) * 64)
            if self.clock % 64 == 0:
                self.count_word(at, popcount(self.words[at].bits))

    cdef void clear_range(self, int64_t start, int64_t stop) noexcept nogil:
        """Clear bits that are set."""
        cdef int64_t at, end
        while start < stop:
            at = start // 64
            end = min(stop, (at + 1) * 64)
            self.words[at].bits &= ~word_mask(start, end)
            if at < self.clock // 64:
                self.count_word(at, -<int32_t>(end - start))
            start = end

    cdef int compact(self, int64_t wanted) except -1 nogil:
        """Number the positions in use 0, 1, 2, … and make room for ``wanted`` more.

        Called between the clearing and the setting of a request's bits: blocks whose bit is clear
        get any position, since they are about to be given theirs.
        """
        cdef int64_t i, before, total = 0, kept = 0
        for i in range(self.positions // 64):
            self.words[i].before = <uint32_t>total
            total += popcount(self.words[i].bits)
        for i in range(self.known):
            if self.last[i] != NEVER:
                self.last[i] = <uint32_t>self.in_use_before(self.last[i])
        for i in range(self.sweep_count):
            before = self.sweeps[i].start
            # A sweep may start where the last position ends, when all it touched is gone again.
            self.sweeps[i].start = total if before == self.positions else self.in_use_before(before)
        self.clock = total
        for i in range(self.sweep_count):
            before = self.sweeps[i + 1].start if i + 1 < self.sweep_count else total
            if before > self.sweeps[i].start:
                self.sweeps[kept] = self.sweeps[i]
                self.arrivals_ns[kept] = self.arrivals_ns[i]
                kept += 1
        self.sweep_count = kept
        return self.renew(total + wanted)

    cdef int64_t in_use_before(self, int64_t position) noexcept nogil:
        cdef Word* word = &self.words[position // 64]
        return word.before + popcount(word.bits & below(position))

    cdef int renew(self, int64_t wanted) except -1 nogil:
        """A bit set with the first ``clock`` bits set and room for ``wanted`` positions and more."""
        cdef int64_t positions = max(<int64_t>FIRST_POSITIONS, POSITIONS_A_BLOCK * wanted)
        cdef int64_t clock = self.clock
        cdef int64_t i
        positions = min((positions + 63) // 64 * 64, <int64_t>NEVER // 64 * 64)
        if positions < wanted:
            no_memory("stack", wanted)
        if positions > self.positions:
            self.allot(positions)
        self.clear_all()
        self.append(clock)
        for i in range(self.sweep_count):
            self.mark_start(i, self.sweeps[i + 1].start if i + 1 < self.sweep_count else clock)
        return 0

    cdef int allot(self, int64_t positions) except -1 nogil:
        """Memory for a bit set of so many positions and its tree; what stands in them is anything."""
        cdef int64_t firsts[MOST_LEVELS]
        cdef int64_t entries = positions // 64, size = 0
        cdef int level
        self.depth = 0
        self.positions = 0
        while self.depth == 0 or entries > 1:
            firsts[self.depth] = size
            self.depth += 1
            entries = (entries + FAN - 1) // FAN
            size += entries * FAN
        free(self.words)
        free(self.tree)
        self.words = <Word*>malloc(positions // 64 * sizeof(Word))
        self.tree = <int32_t*>malloc(size * sizeof(int32_t))
        if self.words == NULL or self.tree == NULL:
            no_memory("stack", positions)
        for level in range(self.depth):
            self.levels[level] = self.tree + firsts[level]
        self.positions = positions
        self.tree_size = size
        return 0

    cdef void clear_all(self) noexcept nogil:
        memset(self.words, 0, self.positions // 64 * sizeof(Word))
        memset(self.tree, 0, self.tree_size * sizeof(int32_t))
        self.clock = 0

    cdef int fit_runs(self, int64_t n) except -1 nogil:
        cdef Run* runs = <Run*>realloc(self.runs, 2 * n * sizeof(Run))
        if runs == NULL:
            no_memory("request", n)
        self.runs = runs
        self.run_room = 2 * n
        return 0

    cdef int fit_sweeps(self, int64_t more) except -1 nogil:
        cdef int64_t room = 2 * self.sweep_count + more + 64
        cdef Sweep* sweeps
        cdef int64_t* arrivals_ns
        if self.sweep_count + more > self.sweep_room:
            sweeps = <Sweep*>realloc(self.sweeps, room * sizeof(Sweep))
            if sweeps == NULL:
                no_memory("sweeps", room)
            self.sweeps = sweeps
            arrivals_ns = <int64_t*>realloc(self.arrivals_ns, room * sizeof(int64_t))
            if arrivals_ns == NULL:
                no_memory("sweeps", room)
            self.arrivals_ns = arrivals_ns
            self.sweep_room = room
        return 0

    cdef void add_sweep(self, int64_t arrival_ns, int64_t serial) noexcept nogil:
        cdef Sweep* sweep = &self.sweeps[self.sweep_count]
        sweep.start = self.clock
        sweep.serial = serial
        self.arrivals_ns[self.sweep_count] = arrival_ns
        self.sweep_count += 1
