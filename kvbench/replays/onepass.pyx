"""One pass over a trace that finds what an LRU cache of any capacity would have hit.

For each request: the distances of its blocks before it (see :mod:`kvbench.replays.stack`), their
running maximum (a block hits only where all before it do), the sums by distance, and then the
request goes on top of the stack.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc

from kvbench.hashing cimport mix64
from kvbench.memory cimport no_memory
from kvbench.replays.distances cimport Share, Sums, Weights, share_of
from kvbench.replays.numbers cimport Numbering
from kvbench.replays.stack cimport Run, Stack, Touch

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kvb_leading_zeros(x) __builtin_clzll(x)
    #else
    static inline int kvb_leading_zeros(unsigned long long x) {
        int zeros = 64;
        while (x) {
            x >>= 1;
            zeros--;
        }
        return zeros;
    }
    #endif
    """
    int leading_zeros "kvb_leading_zeros"(uint64_t x) noexcept nogil

cdef enum:
    BLOCKS_BETWEEN_SIGNALS = 1 << 20
    WINDOW = 1024  # blocks that are numbered together
    LONE = 128     # requests of one block that are served together

cdef double TWO_64 = 2.0 ** 64


# One request, as it is counted.
cdef struct Request:
    int64_t full          # full blocks among the cacheable ones
    int64_t input_tokens
    int64_t arrival_ns
    Weights weights


@cython.final
cdef class OnePass:
    """Fills ``sums``.

    ``block_tokens``  tokens of a full block; 0 where there are none.
    ``dense``         keys are 0, 1, 2, … and number themselves.

    In a sample each request has a group, negative if the request is not in it. The distances of
    those that are get measured with a ruler: of the blocks of all other requests, those whose
    hash is below ``ruler`` (a share) lie on a stack of their own and stand for 1 / ``ruler`` blocks
    each. Some blocks of the others are followed one by one:

    ``trunk``   so many leading blocks of each request, which all share, and
    ``shared``  if so, those that a request of the sample asked for before.
    """

    cdef readonly Stack stack
    cdef Numbering numbering
    cdef Sums sums
    cdef int64_t block_tokens
    cdef int64_t trunk
    cdef bint shared
    cdef bint sampled
    cdef double ruler_rate
    cdef uint64_t ruler_limit, salt
    cdef Stack ruler
    cdef Numbering ruler_numbering
    cdef int32_t* ids
    cdef uint64_t* marked
    cdef int64_t room
    cdef int64_t serial
    cdef int64_t times[64]

    def __cinit__(self, Sums sums not None, *, int64_t block_tokens, bint dense, double ruler=0, uint64_t salt=0,
                  int64_t trunk=0, bint shared=False):
        if not 0 <= ruler <= 1 or trunk < 0 or block_tokens < 0:
            raise ValueError("ruler must be a share, and no count negative")
        self.sums = sums
        self.block_tokens = block_tokens
        self.stack = Stack()
        self.sampled = ruler > 0
        if dense and self.sampled:
            raise ValueError("keys of a sample are not dense")
        self.numbering = None if dense else Numbering()
        self.trunk = trunk
        self.shared = shared
        self.ruler_rate = ruler
        self.ruler_limit = <uint64_t>-1 if ruler == 1 else <uint64_t>(ruler * TWO_64)
        self.salt = salt
        self.ruler = Stack()
        self.ruler_numbering = Numbering()

    def __dealloc__(self):
        free(self.ids)
        free(self.marked)

    @property
    def distinct(self):
        """Distinct blocks seen; in a sample, the estimate of them."""
        return self.stack.distinct + (round(self.ruler.distinct / self.ruler_rate) if self.sampled else 0)

    @property
    def reuse_times(self):
        """64 counts: blocks whose last use was t nanoseconds ago, by the bit length of t."""
        return list(self.times)

    def run(self, const uint64_t[::1] keys, const int64_t[::1] offsets, const int32_t[::1] cacheable,
            const int64_t[::1] input_tokens, const int64_t[::1] arrival_ns, const int32_t[::1] groups=None):
        """Take in a batch; the first three as in OrderReplay.run. ``groups`` go with a sample."""
        cdef int64_t n = cacheable.shape[0]
        cdef int64_t i
        if offsets.shape[0] != n + 1 or input_tokens.shape[0] != n or arrival_ns.shape[0] != n:
            raise ValueError("offsets, cacheable, input_tokens and arrival_ns do not belong together")
        if n == 0:
            return
        if offsets[0] < 0 or offsets[n] > keys.shape[0]:
            raise ValueError("offsets point outside the keys")
        for i in range(n):
            if not 0 <= cacheable[i] <= offsets[i + 1] - offsets[i]:
                raise ValueError(f"request {i} of the batch has {offsets[i + 1] - offsets[i]} blocks, not {cacheable[i]}")
        if (groups is not None) != self.sampled or (groups is not None and groups.shape[0] != n):
            raise ValueError("groups go with a sample, one for each request")
        if keys.shape[0] == 0:
            return
        with nogil:
            if groups is None:
                self.serve_all(&keys[0], &offsets[0], &cacheable[0], &input_tokens[0], &arrival_ns[0], n)
            else:
                self.serve_sampled(
                    &keys[0], &offsets[0], &cacheable[0], &input_tokens[0], &arrival_ns[0], &groups[0], n
                )

    cdef int serve_sampled(self, const uint64_t* keys, const int64_t* offsets, const int32_t* cacheable,
                           const int64_t* input_tokens, const int64_t* arrival_ns, const int32_t* groups,
                           int64_t n) except -1 nogil:
        cdef int64_t i, since_signals = 0
        for i in range(n):
            self.serial += 1
            if cacheable[i] == 0:
                continue
            self.fit(cacheable[i])
            if groups[i] < 0:
                self.pass_by(keys + offsets[i], cacheable[i], arrival_ns[i])
            else:
                self.sums.set_group(groups[i])
                self.number(keys + offsets[i], cacheable[i], self.ids)
                self.serve(self.ids, cacheable[i], offsets[i + 1] - offsets[i], input_tokens[i], arrival_ns[i])
            since_signals += 1 + cacheable[i]
            if since_signals > BLOCKS_BETWEEN_SIGNALS:
                since_signals = 0
                with gil:
                    PyErr_CheckSignals()
        return 0

    cdef int serve_all(self, const uint64_t* keys, const int64_t* offsets, const int32_t* cacheable,
                       const int64_t* input_tokens, const int64_t* arrival_ns, int64_t n) except -1 nogil:
        """Serve requests in windows, whose blocks are numbered together: what short requests need of
        memory can then be fetched beyond the next of them."""
        cdef int64_t first = 0, stop, i, blocks, since_signals = 0
        cdef const int32_t* ids
        while first < n:
            stop = first + 1
            while stop < n and offsets[stop + 1] - offsets[first] <= WINDOW:
                stop += 1
            self.number_window(keys, offsets + first, cacheable + first, stop - first)
            i = first
            while i < stop:
                ids = self.ids + (offsets[i] - offsets[first])
                blocks = self.lone(offsets + i, cacheable + i, input_tokens + i, stop - i)
                if blocks:
                    self.stack.expect(ids + blocks, min(blocks, offsets[stop] - offsets[i] - blocks))
                    self.serve_lone(ids, blocks, arrival_ns + i)
                    i += blocks
                    continue
                self.serial += 1
                if cacheable[i]:
                    self.serve(ids, cacheable[i], offsets[i + 1] - offsets[i], input_tokens[i], arrival_ns[i])
                i += 1
            since_signals += offsets[stop] - offsets[first] + stop - first
            first = stop
            if since_signals > BLOCKS_BETWEEN_SIGNALS:
                since_signals = 0
                with gil:
                    PyErr_CheckSignals()
        return 0

    cdef int number_window(self, const uint64_t* keys, const int64_t* offsets, const int32_t* cacheable,
                           int64_t n) except -1 nogil:
        """Write the numbers of the cacheable blocks of ``n`` requests to ``ids``, where their keys stand."""
        cdef int64_t i = 0, start
        self.fit(offsets[n] - offsets[0])
        while i < n:
            start = offsets[i]
            while i + 1 < n and cacheable[i] == offsets[i + 1] - offsets[i]:
                i += 1
            self.number(keys + start, offsets[i] + cacheable[i] - start, self.ids + (start - offsets[0]))
            i += 1
        return 0

    cdef int64_t lone(self, const int64_t* offsets, const int32_t* cacheable, const int64_t* input_tokens,
                      int64_t n) noexcept nogil:
        """How many of ``n`` requests, from the first on, are one full block each and no more; LONE at most."""
        cdef int64_t i = 0
        n = min(n, <int64_t>LONE)
        while i < n and cacheable[i] == 1 and offsets[i + 1] - offsets[i] == 1 and (
            not self.block_tokens or input_tokens[i] == self.block_tokens
        ):
            i += 1
        return i

    cdef int serve_lone(self, const int32_t* ids, int64_t n, const int64_t* arrival_ns) except -1 nogil:
        cdef Touch touches[LONE]
        cdef Weights weights = self.weights_of(1, self.block_tokens)
        cdef int64_t i
        self.stack.touch(ids, n, arrival_ns, self.serial + 1, touches)
        self.serial += n
        for i in range(n):
            if touches[i].distance >= 0:
                self.times[bit_length(max(arrival_ns[i] - touches[i].last_ns, <int64_t>0))] += 1
        return self.sums.add_lone(touches, n, &weights)

    cdef Weights weights_of(self, int64_t blocks, int64_t input_tokens) noexcept nogil:
        cdef Weights weights
        weights.block = share_of(1, blocks)
        weights.token = token_share(min(self.block_tokens, input_tokens), input_tokens)
        return weights

    cdef int serve(self, const int32_t* ids, int64_t n, int64_t blocks, int64_t input_tokens,
                   int64_t arrival_ns) except -1 nogil:
        cdef Request request
        request.full = min(n, input_tokens // self.block_tokens) if self.block_tokens else n
        request.input_tokens = input_tokens
        request.arrival_ns = arrival_ns
        request.weights = self.weights_of(blocks, input_tokens)
        self.stack.locate(ids, n)
        self.count(&request)
        return self.stack.place(ids, n, arrival_ns, self.serial)

    cdef int pass_by(self, const uint64_t* keys, int64_t n, int64_t arrival_ns) except -1 nogil:
        """Take notice of a request that is not in the sample."""
        cdef int64_t leading = min(self.trunk, n)
        cdef int64_t i, followed = leading, marked = 0
        for i in range(leading, n):
            if mix64(keys[i] ^ self.salt) < self.ruler_limit and (
                not self.shared or not self.numbering.knows(keys[i])
            ):
                self.marked[marked] = keys[i]
                marked += 1
        if marked:
            self.ruler_numbering.number(self.marked, marked, self.ids)
            self.ruler.know(self.ruler_numbering.used)
            self.ruler.locate(self.ids, marked)
            self.ruler.place(self.ids, marked, arrival_ns, self.serial)
        # The leading blocks end above the others (semantics §5.1).
        if leading:
            self.numbering.number(keys, leading, self.ids)
            self.stack.know(self.numbering.used)
        if self.shared:
            followed += self.numbering.find(keys + leading, n - leading, self.ids + leading)
        self.stack.locate(self.ids, followed)
        return self.stack.place(self.ids, followed, arrival_ns, self.serial)

    cdef int fit(self, int64_t n) except -1 nogil:
        cdef int32_t* ids
        cdef uint64_t* marked
        if n > self.room:
            ids = <int32_t*>realloc(self.ids, 2 * n * sizeof(int32_t))
            if ids == NULL:
                no_memory("request", n)
            self.ids = ids
            if self.sampled:
                marked = <uint64_t*>realloc(self.marked, 2 * n * sizeof(uint64_t))
                if marked == NULL:
                    no_memory("request", n)
                self.marked = marked
            self.room = 2 * n
        return 0

    cdef int number(self, const uint64_t* keys, int64_t n, int32_t* ids) except -1 nogil:
        cdef int64_t i
        cdef int32_t largest = 0
        cdef uint64_t together = 0
        if self.numbering is not None:
            self.numbering.number(keys, n, ids)
            return self.stack.know(self.numbering.used)
        # Two loops, which compilers make vector code of.
        for i in range(n):
            ids[i] = <int32_t>keys[i]
            together |= keys[i]
        if together >> 31:
            no_memory("stack", <int64_t>(together >> 1))
        for i in range(n):
            largest = max(largest, ids[i])
        return self.stack.know(<int64_t>largest + 1) if n else 0

    cdef int count(self, const Request* request) except -1 nogil:
        """Add up what the located runs say of a request."""
        cdef int64_t k, distance, elapsed, hits = 0, peak = -1
        cdef Run* run
        for k in range(self.stack.run_count):
            run = &self.stack.runs[k]
            distance = run.distance
            if self.sampled:
                distance += <int64_t>(self.ruler.after(self.stack.sweeps[run.sweep].serial) / self.ruler_rate + 0.5)
            elapsed = max(request.arrival_ns - self.stack.arrivals_ns[run.sweep], <int64_t>0)
            self.times[bit_length(elapsed)] += run.length
            self.sums.add_resident(distance, run.length)
            if run.first == hits:
                if hits == 0:
                    self.sums.add_first(distance)
                peak = self.count_run(run.first, run.length, distance, peak, request)
                hits += run.length
        return 0

    cdef int64_t count_run(self, int64_t first, int64_t blocks, int64_t distance, int64_t peak,
                           const Request* request) except -2 nogil:
        """Add the hits of a run at the running maximum of distances, which was ``peak``; returns the new one."""
        cdef int64_t whole = max(min(first + blocks, request.full) - first, <int64_t>0)
        cdef int64_t level = min(max(peak - distance + 1, <int64_t>0), whole)
        cdef int64_t i, tokens
        cdef Weights own
        if level > 0:
            self.sums.add_level(peak, level, &request.weights)
        if whole > level:
            self.sums.add_hits(distance + level, whole - level, &request.weights)
        for i in range(whole, blocks):
            # Only the last block of a request is partial, so this is rare.
            tokens = max(request.input_tokens - (first + i) * self.block_tokens, <int64_t>0)
            own.block = request.weights.block
            own.token = token_share(tokens, request.input_tokens)
            self.sums.add_tail(max(peak, distance + i), tokens, &own)
        return max(peak, distance + blocks - 1)


cdef inline Share token_share(int64_t tokens, int64_t input_tokens) noexcept nogil:
    cdef Share share
    share.low = share.high = 0
    if tokens > 0:
        share = share_of(tokens, input_tokens)
    return share


cdef inline int bit_length(uint64_t x) noexcept nogil:
    return 64 - leading_zeros(x) if x else 0
