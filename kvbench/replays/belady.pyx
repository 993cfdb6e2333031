"""The Belady bound for prefix caches, and the next uses that it needs.

A block's **next use** is the number of the request that asks for it next. With it the best that
any cache can do is known: after each request keep, of what was there and what was asked, the
blocks whose next use is nearest, and of equal ones the parents before their children (Belady, IBM
Systems Journal 5 (2), 1966, with leave to turn newcomers away). A block is then never evicted
before its descendants, because whoever asks for a descendant asks for the block as well.

All blocks that the same request asks for next lie in one bucket, from shallow to deep, so a
request finds its residents in its own bucket and a victim is the deep end of the last bucket:
no ordering by block is needed, and the bound costs about as much as a replay of LRU.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from kvbench.memory cimport no_memory

cdef enum:
    NEVER_AGAIN = 0x7fffffff
    NOBODY = -1

NEVER = NEVER_AGAIN
"""The next use of a block that nobody asks for again."""


@cython.final
cdef class NextUses:
    """Finds next uses in one pass: each access of a block is the next use of the one before.

    ``note`` is given dense ids in trace order and an array over *all* accesses so far; it writes
    the current request's number to the place of each block's previous access. Memory: eight
    bytes a distinct block.
    """

    cdef int64_t* last      # id -> place of its latest access, 1-based; 0: none
    cdef uint64_t size
    cdef readonly int64_t accesses
    cdef readonly int64_t requests

    def __dealloc__(self):
        free(self.last)

    def note(self, const uint64_t[::1] ids, const int64_t[::1] offsets, const int32_t[::1] cacheable,
             int32_t[::1] next_use):
        """Take in one batch: request i asks for ``ids[offsets[i]:offsets[i] + cacheable[i]]``.

        The batch's own accesses take the next ``len(ids)`` places of ``next_use``, those beyond
        ``cacheable`` too; all of them must be there.
        """
        cdef int64_t i, j, place
        cdef int64_t base = self.accesses
        if next_use.shape[0] < base + ids.shape[0] or offsets.shape[0] != cacheable.shape[0] + 1:
            raise ValueError("next_use is too short, or offsets and cacheable do not belong together")
        for i in range(ids.shape[0]):
            next_use[base + i] = NEVER_AGAIN
        for i in range(cacheable.shape[0]):
            if not 0 <= offsets[i] <= offsets[i] + cacheable[i] <= ids.shape[0]:
                raise ValueError(f"request {i} of the batch reaches beyond its ids")
            for j in range(offsets[i], offsets[i] + cacheable[i]):
                if ids[j] >= self.size:
                    self.grow(ids[j])
                place = self.last[ids[j]]
                if place:
                    next_use[place - 1] = <int32_t>self.requests
                self.last[ids[j]] = base + j + 1
            self.requests += 1
        self.accesses += ids.shape[0]

    cdef int grow(self, uint64_t largest) except -1:
        cdef uint64_t size = max(largest + 1, 2 * self.size, <uint64_t>4096)
        cdef int64_t* last = <int64_t*>realloc(self.last, size * sizeof(int64_t))
        if last == NULL:
            no_memory("next uses", size)
        memset(last + self.size, 0, (size - self.size) * sizeof(int64_t))
        self.last = last
        self.size = size
        return 0


@cython.final
cdef class BeladyBound:
    """The bound for a cache of ``capacity`` blocks over a trace of ``requests`` requests.

    Memory: five bytes a distinct block and eight a request.
    """

    cdef readonly int64_t capacity
    cdef readonly int64_t used
    cdef int64_t requests
    cdef int64_t request
    cdef uint8_t* resident    # id -> 1 if it is
    cdef int32_t* shallower   # id -> next block of its bucket towards the root
    cdef uint64_t size
    cdef int32_t* deep        # request -> deep end of its bucket
    cdef int32_t* shallow     # request -> shallow end
    cdef int32_t* heap        # max-heap of the requests whose buckets got something
    cdef int64_t heap_used, heap_room

    def __cinit__(self, int64_t capacity, int64_t requests):
        self.capacity = capacity
        self.requests = requests
        self.deep = <int32_t*>calloc(max(requests, 1), sizeof(int32_t))
        self.shallow = <int32_t*>calloc(max(requests, 1), sizeof(int32_t))
        if self.deep == NULL or self.shallow == NULL:
            raise MemoryError(f"Belady bound: no memory for {requests:,} requests")
        memset(self.deep, 0xff, max(requests, 1) * sizeof(int32_t))

    def __dealloc__(self):
        free(self.resident)
        free(self.shallower)
        free(self.deep)
        free(self.shallow)
        free(self.heap)

    def run(self, const uint64_t[::1] ids, const int64_t[::1] offsets, const int32_t[::1] cacheable,
            const int32_t[::1] next_use, int32_t[::1] hit_blocks):
        """Serve one batch; ``next_use`` goes with ``ids``, ``hit_blocks`` gets the prefix hits."""
        cdef int64_t i, n = cacheable.shape[0]
        if next_use.shape[0] != ids.shape[0] or hit_blocks.shape[0] != n or offsets.shape[0] != n + 1:
            raise ValueError("ids, next uses, offsets, cacheable and hits do not belong together")
        if self.request + n > self.requests:
            raise ValueError(f"more than the {self.requests:,} requests that were announced")
        for i in range(ids.shape[0]):
            if ids[i] >= self.size:
                self.grow(ids[i])
        for i in range(n):
            if not 0 <= offsets[i] <= offsets[i] + cacheable[i] <= ids.shape[0]:
                raise ValueError(f"request {i} of the batch reaches beyond its ids")
            hit_blocks[i] = 0
            if cacheable[i]:
                hit_blocks[i] = self.serve(&ids[offsets[i]], &next_use[offsets[i]], cacheable[i])
            self.request += 1

    cdef int32_t serve(self, const uint64_t* ids, const int32_t* next_use, int32_t n) except -1:
        cdef int32_t i, hit = 0
        while hit < n and self.resident[ids[hit]]:
            hit += 1
        self.deep[self.request] = NOBODY
        # Deepest first: a later request's blocks are the shallower ones of a bucket, because they
        # are the part of the path that both of the earlier requests went.
        for i in range(n - 1, -1, -1):
            self.used -= self.resident[ids[i]]
            self.resident[ids[i]] = 0
            if next_use[i] != NEVER_AGAIN:
                if next_use[i] <= self.request or next_use[i] >= self.requests:
                    raise ValueError(f"request {self.request} has a next use of {next_use[i]}")
                self.put(<int32_t>ids[i], next_use[i])
        while self.used > self.capacity:
            self.evict()
        return hit

    cdef int put(self, int32_t block, int32_t bucket) except -1:
        if self.deep[bucket] == NOBODY:
            self.deep[bucket] = block
            self.push(bucket)
        else:
            self.shallower[self.shallow[bucket]] = block
        self.shallower[block] = NOBODY
        self.shallow[bucket] = block
        self.resident[block] = 1
        self.used += 1
        return 0

    cdef int evict(self) except -1:
        cdef int32_t bucket = self.heap[0]
        cdef int32_t block = self.deep[bucket]
        if block == NOBODY or bucket <= self.request:
            self.pop()  # emptied since, or its request has been served
            return 0
        self.deep[bucket] = self.shallower[block]
        self.resident[block] = 0
        self.used -= 1
        return 0

    cdef int push(self, int32_t bucket) except -1:
        cdef int64_t at = self.heap_used
        cdef int64_t room
        cdef int32_t* heap
        if self.heap_used == self.heap_room:
            room = max(<int64_t>1024, 2 * self.heap_room)
            heap = <int32_t*>realloc(self.heap, room * sizeof(int32_t))
            if heap == NULL:
                no_memory("Belady bound", room)
            self.heap = heap
            self.heap_room = room
        self.heap_used += 1
        while at > 0 and self.heap[(at - 1) // 2] < bucket:
            self.heap[at] = self.heap[(at - 1) // 2]
            at = (at - 1) // 2
        self.heap[at] = bucket
        return 0

    cdef void pop(self) noexcept:
        cdef int64_t at = 0
        cdef int64_t child
        cdef int32_t last
        self.heap_used -= 1
        last = self.heap[self.heap_used]
        while 2 * at + 1 < self.heap_used:
            child = 2 * at + 1
            if child + 1 < self.heap_used and self.heap[child + 1] > self.heap[child]:
                child += 1
            if self.heap[child] <= last:
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = last

    cdef int grow(self, uint64_t largest) except -1:
        cdef uint64_t size = max(largest + 1, 2 * self.size, <uint64_t>4096)
        cdef uint8_t* resident
        cdef int32_t* shallower
        if largest >= NEVER_AGAIN:
            raise ValueError(f"id {largest} is not dense")
        resident = <uint8_t*>realloc(self.resident, size)
        if resident == NULL:
            no_memory("Belady bound", size)
        self.resident = resident
        memset(resident + self.size, 0, size - self.size)
        shallower = <int32_t*>realloc(self.shallower, size * sizeof(int32_t))
        if shallower == NULL:
            no_memory("Belady bound", size)
        self.shallower = shallower
        self.size = size
        return 0
