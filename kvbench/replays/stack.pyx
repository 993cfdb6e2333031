"""The LRU stack of a whole trace: for each block of a request, how many distinct blocks were touched
since its last touch.

A request is swept last block to first (semantics §5.1), so the state of an LRU cache of C blocks is
the top C of one stack, whatever C is, and a block is resident there exactly if its distance, the
number of distinct blocks above it, is less than C (Mattson et al., 1970).

Each touch takes the next position of a bit set; a block's bit stands where its last touch is, so
the distance of a block is the number of bits set after its own. A Fenwick tree counts bits by
lines of 512. Blocks that were swept together stay neighbours, so the work is done by runs of them
(:class:`Run`), not by block: one search of the tree a run, one bit operation for 64 blocks. What is
left for each block is to read and write its position. When the positions are used up, they are
numbered anew without the gaps, so memory grows with distinct blocks alone: 4 bytes and 8 bits each.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from kvbench.cache.table cimport ABSENT, HashTable
from kvbench.hashing cimport mix64
from kvbench.memory cimport no_memory
from kvbench.prefetch cimport prefetch

from kvbench.errors import PluginError

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kvb_popcount64(x) __builtin_popcountll(x)
    #else
    static inline int kvb_popcount64(unsigned long long x) {
        x = x - ((x >> 1) & 0x5555555555555555ULL);
        x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
        return (int)((((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL) >> 56);
    }
    #endif
    """
    int popcount "kvb_popcount64"(uint64_t bits) noexcept nogil

cdef enum:
    NEVER = 0xffffffff      # position of a block that was never touched
    LINE = 512              # bits counted together: one cache line
    LINE_WORDS = 8
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
cdef class Numbering:
    """Numbers keys 0, 1, 2, … in first-seen order. A block's successor in the request is most often
    the next number, which is tried before the hash table is asked."""

    def __cinit__(self):
        self.table = HashTable()
        self.keys = NULL

    def __dealloc__(self):
        free(self.keys)

    cdef int number(self, const uint64_t* keys, int64_t n, int32_t* ids) except -1 nogil:
        """Write the number of each key to ``ids``."""
        cdef int64_t i, room, next = 0
        cdef uint64_t* wider
        if self.used + n > self.room:
            room = 2 * (self.used + n)
            wider = <uint64_t*>realloc(self.keys, room * sizeof(uint64_t))
            if wider == NULL:
                no_memory("numbers of keys", room)
            self.keys = wider
            self.room = room
            self.table.set_keys(wider)
        for i in range(n):
            if next >= self.used or self.keys[next] != keys[i]:
                next = self.table.find(keys[i])
                if next == ABSENT:
                    next = self.used
                    if next == MOST_BLOCKS:
                        no_memory("numbers of keys", next)
                    self.keys[next] = keys[i]
                    self.table.insert(keys[i], <int32_t>next)
                    self.used += 1
            ids[i] = <int32_t>next
            next += 1
        return 0


    cdef void ready(self, uint64_t key) noexcept nogil:
        """Fetch what the table will be asked about ``key``."""
        prefetch(&self.table.entries[mix64(key) >> (64 - self.table.bits)])

    cdef int64_t find(self, const uint64_t* keys, int64_t n, int32_t* ids) noexcept nogil:
        """Write the numbers of those keys that have one, in order, and return how many have."""
        cdef int64_t i, found = 0
        cdef int32_t number
        for i in range(n):
            number = self.table.find(keys[i])
            if number != ABSENT:
                ids[found] = number
                found += 1
        return found


@cython.final
cdef class Stack:
    """The stack. ``locate`` finds the runs of a request and changes nothing; ``place`` then puts the
    request on top."""

    def __cinit__(self):
        self.positions = FIRST_POSITIONS
        self.bits = <uint64_t*>calloc(FIRST_POSITIONS // 64, sizeof(uint64_t))
        self.tree = <int32_t*>calloc(FIRST_POSITIONS // LINE + 1, sizeof(int32_t))
        self.starts = <uint64_t*>calloc(FIRST_POSITIONS // 64, sizeof(uint64_t))
        self.started = <uint32_t*>calloc(FIRST_POSITIONS // 64, sizeof(uint32_t))
        if self.bits == NULL or self.tree == NULL or self.starts == NULL or self.started == NULL:
            no_memory("stack", FIRST_POSITIONS)

    def __dealloc__(self):
        free(self.last)
        free(self.bits)
        free(self.tree)
        free(self.starts)
        free(self.started)
        free(self.sweeps)
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
        self.set_range(self.clock, self.clock + n)
        self.clock += n
        return 0

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
        cdef int64_t line = position // LINE
        cdef int64_t word = position // 64
        cdef int64_t at, count = 0
        for at in range(line * LINE_WORDS, word):
            count += popcount(self.bits[at])
        count += popcount(self.bits[word] & (<uint64_t>-1 >> (63 - position % 64)))
        while line > 0:
            count += self.tree[line]
            line &= line - 1
        return count

    cdef int64_t sweep_of(self, int64_t time) noexcept nogil:
        """The sweep that made the touch at ``time``."""
        cdef int64_t word = time // 64
        return self.started[word] + popcount(self.starts[word] & (<uint64_t>-1 >> (63 - time % 64))) - 1

    cdef void mark_start(self, int64_t index, int64_t end) noexcept nogil:
        """Note where a sweep starts, and in all words that begin before its ``end`` how many sweeps started before."""
        cdef int64_t start = self.sweeps[index].start
        cdef int64_t word = start // 64
        if start % 64 == 0:
            self.started[word] = <uint32_t>index
            self.starts[word] = 0
        self.starts[word] |= <uint64_t>1 << (start % 64)
        for word in range(word + 1, (end + 63) // 64):
            self.started[word] = <uint32_t>(index + 1)
            self.starts[word] = 0

    cdef void count_line(self, int64_t line, int32_t change) noexcept nogil:
        line += 1
        while line <= self.positions // LINE:
            self.tree[line] += change
            line += line & -line

    cdef void set_range(self, int64_t start, int64_t stop) noexcept nogil:
        """Set bits that are clear."""
        cdef int64_t end
        while start < stop:
            end = min(stop, (start // LINE + 1) * LINE)
            self.count_line(start // LINE, <int32_t>(end - start))
            while start < end:
                self.bits[start // 64] |= word_mask(start, end)
                start = min(end, (start // 64 + 1) * 64)

    cdef void clear_range(self, int64_t start, int64_t stop) noexcept nogil:
        """Clear bits that are set."""
        cdef int64_t end
        while start < stop:
            end = min(stop, (start // LINE + 1) * LINE)
            self.count_line(start // LINE, -<int32_t>(end - start))
            while start < end:
                self.bits[start // 64] &= ~word_mask(start, end)
                start = min(end, (start // 64 + 1) * 64)

    cdef int compact(self, int64_t wanted) except -1 nogil:
        """Number the positions in use 0, 1, 2, … and make room for ``wanted`` more.

        Called between the clearing and the setting of a request's bits: blocks whose bit is clear
        get any position, since they are about to be given theirs.
        """
        cdef int64_t words = self.positions // 64
        cdef int64_t i, kept = 0
        cdef int64_t before
        cdef uint32_t* ahead = <uint32_t*>malloc((words + 1) * sizeof(uint32_t))
        cdef uint32_t position
        if ahead == NULL:
            no_memory("stack", words)
        ahead[0] = 0
        for i in range(words):
            ahead[i + 1] = ahead[i] + popcount(self.bits[i])
        for i in range(self.known):
            position = self.last[i]
            if position != NEVER:
                self.last[i] = ahead[position // 64] + popcount(self.bits[position // 64] & below(position))
        for i in range(self.sweep_count):
            before = self.sweeps[i].start
            # A sweep may start where the last position ends, when all it touched is gone again.
            self.sweeps[i].start = ahead[words] if before == self.positions else (
                ahead[before // 64] + popcount(self.bits[before // 64] & below(before))
            )
        self.clock = ahead[words]
        free(ahead)
        for i in range(self.sweep_count):
            before = self.sweeps[i + 1].start if i + 1 < self.sweep_count else self.clock
            if before > self.sweeps[i].start:
                self.sweeps[kept] = self.sweeps[i]
                kept += 1
        self.sweep_count = kept
        return self.renew(self.clock + wanted)

    cdef int renew(self, int64_t wanted) except -1 nogil:
        """A bit set with the first ``clock`` bits set and room for ``wanted`` positions and more."""
        cdef int64_t positions = max(<int64_t>FIRST_POSITIONS, POSITIONS_A_BLOCK * wanted)
        cdef int64_t clock = self.clock
        cdef int64_t i
        positions = min((positions + LINE - 1) // LINE * LINE, <int64_t>NEVER // LINE * LINE)
        if positions < wanted:
            no_memory("stack", wanted)
        if positions > self.positions:
            free(self.bits)
            free(self.tree)
            free(self.starts)
            free(self.started)
            self.bits = <uint64_t*>malloc(positions // 8)
            self.starts = <uint64_t*>malloc(positions // 8)
            self.started = <uint32_t*>malloc(positions // 64 * sizeof(uint32_t))
            self.tree = <int32_t*>malloc((positions // LINE + 1) * sizeof(int32_t))
            if self.bits == NULL or self.tree == NULL or self.starts == NULL or self.started == NULL:
                self.positions = 0
                no_memory("stack", positions)
            self.positions = positions
        memset(self.bits, 0, self.positions // 8)
        memset(self.tree, 0, (self.positions // LINE + 1) * sizeof(int32_t))
        self.set_range(0, clock)
        for i in range(self.sweep_count):
            self.mark_start(i, self.sweeps[i + 1].start if i + 1 < self.sweep_count else clock)
        return 0

    cdef int fit_runs(self, int64_t n) except -1 nogil:
        cdef Run* runs = <Run*>realloc(self.runs, 2 * n * sizeof(Run))
        if runs == NULL:
            no_memory("request", n)
        self.runs = runs
        self.run_room = 2 * n
        return 0

    cdef int add_sweep(self, int64_t arrival_ns, int64_t serial) except -1 nogil:
        cdef Sweep* sweep
        cdef int64_t room = 2 * self.sweep_room + 64
        if self.sweep_count == self.sweep_room:
            sweep = <Sweep*>realloc(self.sweeps, room * sizeof(Sweep))
            if sweep == NULL:
                no_memory("sweeps", room)
            self.sweeps = sweep
            self.sweep_room = room
        sweep = &self.sweeps[self.sweep_count]
        sweep.start = self.clock
        sweep.arrival_ns = arrival_ns
        sweep.serial = serial
        self.sweep_count += 1
        return 0


cdef inline uint64_t below(int64_t position) noexcept nogil:
    # The bits of a word before the one of `position`.
    return (<uint64_t>1 << (position % 64)) - 1


cdef inline uint64_t word_mask(int64_t start, int64_t stop) noexcept nogil:
    # The bits from `start` to the end of its word, or to `stop` where that comes first.
    cdef int64_t end = min(stop, (start // 64 + 1) * 64)
    return (<uint64_t>-1 >> (64 - (end - start))) << (start % 64)
