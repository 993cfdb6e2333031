"""What the requests of a worker hold of its tiers.

Of the GPU a running request holds ``ceil(tokens / chunk)`` chunks. Those that are blocks of the cache are pinned;
the others (a partial last block, the answer, copies of what another request computes at the same time) are
held back from the tier's capacity. Of lower tiers it pins what it reads from them.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, realloc

from kvbench.cache.events cimport EventLog
from kvbench.cache.flights cimport BY_COMPUTING, BY_PROMOTION
from kvbench.cache.frame cimport Level
from kvbench.cache.stack cimport TierStack
from kvbench.cache.stacked cimport StackedTier
from kvbench.eviction.view cimport STORED_NOW
from kvbench.memory cimport no_memory
from kvbench.serving.compute cimport ComputeModel
from kvbench.serving.request cimport LANDED, Pin, Request
from kvbench.serving.traffic cimport Traffic


cdef class Observer:
    """Hears what happens to requests; this one takes no notice."""

    cdef int tell_facts(self, Request* request) except -1 nogil:
        """The stack of the request's worker is to know what the request is."""
        return 0

    cdef int looked_up(self, Request* request) except -1 nogil:
        """It was looked up for the first time."""
        return 0

    cdef int committed(self, Request* request) except -1 nogil:
        """And was given its slots."""
        return 0

    cdef int changed(self) except -1 nogil:
        """Events may have been recorded."""
        return 0

    cdef int prefill_ended(self, Request* request) except -1 nogil:
        return 0

    cdef int answer_stored(self, Request* request) except -1 nogil:
        """The blocks of its answer were stored, after all else."""
        return 0

    cdef int ended(self, Request* request) except -1 nogil:
        """It is done, or rejected; nobody refers to it afterwards."""
        return 0


cdef class Holdings:
    """Base of :class:`kvbench.serving.mover.Mover`, which says what the arguments are."""

    def __cinit__(self, TierStack stack, Traffic traffic, Observer observer, ComputeModel compute, *,
                  int64_t block_tokens, list chunk_bytes, list reads, list writes, EventLog log=None,
                  bint share=False, bint cheaper=False):
        cdef int32_t t
        if not stack.timed:
            raise ValueError("the stack keeps no time")
        if not 0 < stack.levels <= MOST_LEVELS:
            raise ValueError(f"{stack.levels} tiers")
        self.stack = stack
        self.traffic = traffic
        self.observer = observer
        self.compute = compute
        self.log = log
        self.worker = stack.worker
        self.block_tokens = block_tokens
        self.chunk_tokens = block_tokens * stack.level[0].multiple
        self.ranks = stack.level[0].ranks
        self.share = share
        self.cheaper = cheaper
        self.chunk_bytes = <int64_t*>calloc(stack.levels, sizeof(int64_t))
        self.reads = <int32_t*>calloc(stack.levels, sizeof(int32_t))
        self.writes_to = <int32_t*>calloc(stack.levels, sizeof(int32_t))
        if self.chunk_bytes == NULL or self.reads == NULL or self.writes_to == NULL:
            no_memory("mover", stack.levels)
        for t in range(stack.levels):
            self.chunk_bytes[t] = chunk_bytes[t]
            self.reads[t] = reads[t]
            self.writes_to[t] = writes[t]

    def __dealloc__(self):
        free(self.chunk_bytes)
        free(self.reads)
        free(self.writes_to)

    cdef PyObject* gpu_at(self, int32_t rank) noexcept nogil:
        return self.stack.level[0].places[rank].tier

    cdef PyObject* gpu_above(self, PyObject* tier, int32_t level) noexcept nogil:
        """The store of the GPU that gives a store below its blocks."""
        cdef int32_t r
        for r in range(min(self.ranks, self.stack.level[level].ranks)):
            if self.stack.level[level].places[r].tier == tier:
                return self.gpu_at(r)
        return self.gpu_at(0)

    cdef int64_t chunks_for(self, int64_t tokens) noexcept nogil:
        """Chunks of the GPU that so many tokens take."""
        return (tokens + self.chunk_tokens - 1) // self.chunk_tokens

    cdef bint fits_ever(self, int64_t tokens) noexcept nogil:
        """Whether so many tokens fit into an empty GPU."""
        cdef PyObject* gpu = self.gpu_at(0)
        return not (<StackedTier>gpu).limited or (
            self.chunks_for(tokens) <= (<StackedTier>gpu).limit + (<StackedTier>gpu).held_back
        )

    cdef int64_t held_tokens(self) noexcept nogil:
        """Tokens of all chunks that requests hold."""
        cdef PyObject* gpu = self.gpu_at(0)
        return (<int64_t>(<StackedTier>gpu).pinned + (<StackedTier>gpu).held_back) * self.chunk_tokens

    cdef int64_t capacity_tokens(self) noexcept nogil:
        """Tokens that fit; 0 without bound."""
        cdef PyObject* gpu = self.gpu_at(0)
        if not (<StackedTier>gpu).limited:
            return 0
        return (<int64_t>(<StackedTier>gpu).limit + (<StackedTier>gpu).held_back) * self.chunk_tokens

    cdef bint has_room(self, Request* request) noexcept nogil:
        """Whether the request just looked up finds room for all that it is to hold, in every rank."""
        cdef int32_t r, j, slot
        cdef int64_t mine, unpinned
        cdef PyObject* gpu
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            if not (<StackedTier>gpu).limited:
                continue
            mine = unpinned = 0
            for j in range(self.stack.level[0].chunks):
                slot = (<StackedTier>gpu).slots[j]
                if slot >= 0 and not (<StackedTier>gpu).flights[slot].pending:
                    mine += 1
                    unpinned += (<StackedTier>gpu).refs[slot] == 1
            if self.chunks_for(request.target) - mine > (<StackedTier>gpu).limit - (<StackedTier>gpu).pinned - unpinned:
                return False
        return True

    cdef int32_t pins_in(self, const Request* request, PyObject* tier) noexcept nogil:
        """Chunks of a store that the request has pinned."""
        cdef int32_t k, count = 0
        for k in range(request.pin_count):
            count += request.pins[k].tier == tier
        return count

    cdef int pin_gpu(self, Request* request) except -1 nogil:
        """Pin the request's blocks in the GPU; those that have a slot since just now are under way."""
        cdef Level* level = &self.stack.level[0]
        cdef int32_t r, j, slot, cause, last
        cdef PyObject* gpu
        for r in range(self.ranks):
            gpu = self.gpu_at(r)
            for j in range(level.chunks):
                slot = (<StackedTier>gpu).slots[j]
                cause = LANDED
                if slot <= STORED_NOW:
                    slot = STORED_NOW - slot
                    last = (j + 1) * level.multiple - 1
                    cause = BY_PROMOTION if last < self.stack.hit and self.stack.credit[last] > 0 else BY_COMPUTING
                if slot < 0 or not (<StackedTier>gpu).holds(slot, level.keys[j]):
                    continue
                if cause == LANDED and (<StackedTier>gpu).flights[slot].pending:
                    continue  # another request is computing it: this one has a copy of its own
                (<StackedTier>gpu).pin_slot(slot)
                self.add_pin(&request.pins, &request.pin_count, &request.pin_room, gpu, slot, j, cause)
                if cause != LANDED:
                    (<StackedTier>gpu).depart(slot)
            (<StackedTier>gpu).filled_count = 0
        return 0

    cdef int pin_sources(self, Request* request) except -1 nogil:
        """Pin what lower tiers deliver until it has been read."""
        cdef Level* level
        cdef int32_t t, r, j, slot
        cdef PyObject* tier
        for t in range(1, self.stack.levels):
            level = &self.stack.level[t]
            if level.delivered == 0:
                continue
            for r in range(level.ranks):
                tier = level.places[r].tier
                for j in range(level.chunks):
                    slot = (<StackedTier>tier).slots[j]
                    if slot >= 0 and (<StackedTier>tier).holds(slot, level.keys[j]) and self.stack.delivered_by(t, j):
                        (<StackedTier>tier).pin_slot(slot)
                        self.add_pin(
                            &request.sources, &request.source_count, &request.source_room, tier, slot, j, LANDED
                        )
        return 0

    cdef int add_pin(self, Pin** pins, int32_t* count, int32_t* room, PyObject* tier, int32_t slot, int32_t chunk,
                     int32_t cause) except -1 nogil:
        cdef Pin* grown
        if count[0] == room[0]:
            grown = <Pin*>realloc(pins[0], (2 * room[0] + 32) * sizeof(Pin))
            if grown == NULL:
                no_memory("request", room[0])
            pins[0] = grown
            room[0] = 2 * room[0] + 32
        pins[0][count[0]].tier = tier
        pins[0][count[0]].slot = slot
        pins[0][count[0]].chunk = chunk
        pins[0][count[0]].cause = cause
        count[0] += 1
        return 0
