"""The memory of a stack of tiers: its stores, and the arrays that hold one request."""

from cpython.ref cimport PyObject
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from kvbench.cache.stacked cimport (
    MOVE_UP, TEMPORARY, StackedTier,
)
from kvbench.memory cimport no_memory


cdef class StackFrame:
    """Base of :class:`kvbench.cache.stack.TierStack`, which says what the arguments are."""

    def __cinit__(self, list tiers, *, int32_t worker=0, str walk="any", bint spill=False, int retries=0,
                  uint64_t fault_seed=0):
        cdef int32_t t, r
        cdef Place* place
        self.worker = worker
        self.tiers = tiers
        self.levels = len(tiers)
        self.once = walk == "once"
        self.spill = spill
        self.retries = retries
        self.fault_seed = fault_seed
        self.level = <Level*>calloc(max(self.levels, 1), sizeof(Level))
        self.sources = <PyObject**>calloc(max(self.levels, 1), sizeof(PyObject*))
        if self.level == NULL or self.sources == NULL:
            raise MemoryError("tier stack: no memory")
        for t in range(self.levels):
            self.level[t].ranks = len(tiers[t])
            self.level[t].places = <Place*>calloc(self.level[t].ranks, sizeof(Place))
            if self.level[t].places == NULL:
                raise MemoryError("tier stack: no memory")
            for r in range(self.level[t].ranks):
                place = &self.level[t].places[r]
                place.tier = <PyObject*>(<StackedTier?>tiers[t][r])
                place.counts = (<StackedTier>tiers[t][r]).counts
            self.level[t].multiple = (<StackedTier>tiers[t][0]).multiple
            self.any_moves = self.any_moves or (<StackedTier>tiers[t][0]).promotion == MOVE_UP
            self.always_pins = self.always_pins or (<StackedTier>tiers[t][0]).high or (
                (<StackedTier>tiers[t][0]).promotion == TEMPORARY and t < self.levels - 1
            )

    def __dealloc__(self):
        cdef int32_t t, r
        for t in range(self.levels if self.level != NULL else 0):
            for r in range(self.level[t].ranks):
                free(self.level[t].places[r].mask)
                free(self.level[t].places[r].origin)
            free(self.level[t].places)
            free(self.level[t].gathered)
            free(self.level[t].common)
        free(self.level)
        free(self.sources)
        free(self.lies_in)
        free(self.credit)
        free(self.found)
        free(self.admitted)
        free(self.offered)
        free(self.names)
        free(self.offered_at)

    def keep_time(self):
        """From now on blocks take time to come and go, in the stores too."""
        self.timed = True
        for level in self.tiers:
            for tier in level:
                if (<StackedTier>tier).flights == NULL:
                    tier.keep_time()

    cdef int fit(self, int64_t n) except -1 nogil:
        """Grow the arrays that hold one request."""
        cdef int32_t t, r
        cdef Level* level
        cdef Place* place
        if n <= self.room:
            return 0
        n = max(n, 2 * self.room)
        self.credit = <int8_t*>realloc(self.credit, n)
        self.lies_in = <int8_t*>realloc(self.lies_in, n)
        self.found = <int32_t*>realloc(self.found, n * sizeof(int32_t))
        self.admitted = <uint8_t*>realloc(self.admitted, n)
        self.offered = <uint64_t*>realloc(self.offered, n * sizeof(uint64_t))
        self.names = <uint64_t*>realloc(self.names, n * sizeof(uint64_t))
        self.offered_at = <int32_t*>realloc(self.offered_at, n * sizeof(int32_t))
        if self.credit == NULL or self.lies_in == NULL or self.found == NULL:
            no_memory("request", n)
        if self.admitted == NULL or self.offered == NULL or self.offered_at == NULL or self.names == NULL:
            no_memory("request", n)
        for t in range(self.levels):
            level = &self.level[t]
            if level.multiple > 1:
                level.gathered = <uint64_t*>realloc(level.gathered, n * sizeof(uint64_t))
                if level.gathered == NULL:
                    no_memory("request", n)
            if level.ranks > 1 or self.timed:
                level.common = <int32_t*>realloc(level.common, n * sizeof(int32_t))
                if level.common == NULL:
                    no_memory("request", n)
            for r in range(level.ranks):
                place = &level.places[r]
                place.mask = <uint8_t*>realloc(place.mask, n)
                place.origin = <int8_t*>realloc(place.origin, n)
                if place.mask == NULL or place.origin == NULL:
                    no_memory("request", n)
        self.room = n
        return 0

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        cdef int32_t t, r
        cdef PyObject* tier
        for t in range(self.levels):
            for r in range(self.level[t].ranks):
                tier = self.level[t].places[r].tier
                (<StackedTier>tier).reserve(keys, n)
        return 0
