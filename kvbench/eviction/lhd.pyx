"""LHD, least hit density: evict, out of a sample, the block that is expected to bring the fewest hits
for the room and time it will still take. What is expected is learned from the ages at which
blocks were hit and evicted, apart for 16 classes of blocks by how soon they were used before.

Ages count the uses of all blocks, in steps of 2^shift. **Nothing is learned before 2^20 uses**:
until then the density of class c at age a is (c + 17) / (a + 1). At each 2^20 uses the statistics
are decayed by 0.9 and the densities computed anew; at the 5th and 25th time the shift is fitted to
the number of blocks. A few blocks (1 of 32 uses, at most 1 % of
the tier) are kept as explorers until they are used again.

Source: Beckmann, Chen and Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI
2018, with the constants of libCacheSim 0.3.5, for blocks of one size and one application. Draws
come from the policy's own seeded stream. Cost: O(1) a touched or inserted block, O(samples) an
evicted one; 24 bytes a slot and 8 MB.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kvbench.eviction.members cimport Members, members_add, members_draw, members_init, members_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.rng cimport Stream, stream_below, stream_seed

cdef enum:
    CLASSES = 16
    FIRST_DENSITY = 17    # of class 0 at age 0, until something is learned
    AGES = 20_000         # fits into the ages of Block
    USES_BETWEEN_LESSONS = 1 << 20
    FIRST_SHIFT = 10
    FEW_SAMPLES = 8       # until LESSONS_AT_FIRST lessons
    SAMPLES = 32
    LESSONS_AT_FIRST = 50
    WEAK = 8              # so many new blocks of low density are looked at with every sample
    EXPLORERS = 32        # one new block of so many

cdef double DECAY = 0.9
cdef double AGE_ERROR = 0.01
cdef double NOTHING = 1e-5


cdef struct Block:
    int64_t used         # the time of its last use
    int16_t age          # when it was last hit: its age then, and at the hit before
    int16_t age_before
    uint8_t klass        # class_of both: it is read for each block of a sample, and they change seldom
    uint8_t explorer


cdef struct State:
    Stream stream
    int64_t clock
    int64_t lessons
    int32_t shift
    int32_t budget       # explorers that may still be made
    int32_t weak[WEAK]   # slots + 1
    int64_t weak_count
    double victims       # decayed mean density of what was evicted


@cython.final
cdef class Lhd(EvictionPolicy):
    """``hits``, ``gone`` and ``density`` are tables of CLASSES rows of AGES."""

    cdef Members members
    cdef Block* blocks
    cdef double* hits
    cdef double* gone
    cdef double* density
    cdef State* state

    def __cinit__(self, context):
        cdef size_t cells = CLASSES * AGES
        members_init(&self.members, self, self.capacity)
        self.blocks = <Block*>self.allocate(self.capacity, sizeof(Block))
        self.hits = <double*>self.allocate(cells, sizeof(double))
        self.gone = <double*>self.allocate(cells, sizeof(double))
        self.density = <double*>self.allocate(cells, sizeof(double))
        self.state = <State*>self.allocate(1, sizeof(State))
        stream_seed(&self.state.stream, context.seed)
        self.state.shift = FIRST_SHIFT
        self.state.budget = self.capacity // 100

    cdef int32_t age_of(self, int32_t slot) noexcept nogil:
        cdef int64_t age = (self.state.clock - self.blocks[slot].used) >> self.state.shift
        return <int32_t>min(age, AGES - 1)

    cdef double density_of(self, int32_t slot) noexcept nogil:
        cdef int32_t age = self.age_of(slot)
        cdef int32_t klass = self.blocks[slot].klass
        cdef double density
        if age == AGES - 1:
            return -1  # older than can be told
        if self.state.lessons == 0:
            density = <double>(FIRST_DENSITY + klass) / <double>(age + 1)
        else:
            density = self.density[klass * AGES + age]
        return density + 1 if self.blocks[slot].explorer else density

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i, age
        cdef Block* block
        for i in range(n):
            block = &self.blocks[slots[i]]
            age = self.age_of(slots[i])
            self.hits[block.klass * AGES + age] += 1
            self.end_exploring(slots[i])
            block.age_before = block.age
            block.age = age
            block.klass = class_of(age, block.age_before)
            self.tick(slots[i], False)
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        cdef Block* block
        for i in range(n):
            block = &self.blocks[slots[i]]
            members_add(&self.members, slots[i])
            block.age = 0
            block.age_before = AGES
            block.klass = class_of(0, AGES)
            block.used = self.state.clock
            block.explorer = False
            self.tick(slots[i], True)
        return 0

    cdef bint explores(self) noexcept nogil:
        cdef bint drawn = stream_below(&self.state.stream, EXPLORERS) == 0
        return drawn and self.state.budget > 0 and self.state.lessons < LESSONS_AT_FIRST

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef void forget(self, int32_t slot) noexcept nogil:
        cdef int32_t i
        members_remove(&self.members, slot)
        self.end_exploring(slot)
        for i in range(WEAK):
            if self.state.weak[i] == slot + 1:
                self.state.weak[i] = 0

    cdef void end_exploring(self, int32_t slot) noexcept nogil:
        self.state.budget += self.blocks[slot].explorer
        self.blocks[slot].explorer = False

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found, slot
        for found in range(n):
            slot = self.least()
            if slot < 0:
                return found
            self.state.victims = DECAY * self.state.victims + (1 - DECAY) * self.density_of(slot)
            self.gone[self.blocks[slot].klass * AGES + self.age_of(slot)] += 1
            self.forget(slot)
            victims[found] = slot
        return n

    cdef int32_t least(self) noexcept nogil:
        """The evictable slot of lowest density among a sample and the weak ones; -1: none."""
        cdef int32_t samples = SAMPLES if self.state.lessons >= LESSONS_AT_FIRST else FEW_SAMPLES
        cdef int32_t count = self.members.count[0]
        cdef int32_t best = -1
        cdef int32_t i, slot
        cdef double density, lowest = 0
        for i in range(samples + WEAK if count > 0 else 0):
            if i < samples:
                slot = self.members.slots[stream_below(&self.state.stream, count)]
            else:
                slot = self.state.weak[i - samples] - 1
            if slot < 0 or self.view.refs[slot] != 1:
                continue
            density = self.density_of(slot)
            if best < 0 or density < lowest:
                best = slot
                lowest = density
        # A sample may have nothing but pinned blocks.
        return members_draw(&self.members, &self.state.stream, self.view.refs) if best < 0 else best

    cdef void tick(self, int32_t slot, bint new) noexcept nogil:
        """A block was just used: it may explore or, if new and weak, be looked at with each sample."""
        self.blocks[slot].used = self.state.clock
        if self.explores():
            self.blocks[slot].explorer = True
            self.state.budget -= 1
        elif new and self.density_of(slot) <= self.state.victims:
            self.state.weak[self.state.weak_count % WEAK] = slot + 1
            self.state.weak_count += 1
        self.state.clock += 1
        if self.state.clock % USES_BETWEEN_LESSONS == 0:
            self.learn()

    cdef void learn(self) noexcept nogil:
        cdef int32_t i
        self.state.lessons += 1
        for i in range(CLASSES * AGES):
            self.hits[i] *= DECAY
            self.gone[i] *= DECAY
        if self.state.lessons == 5 or self.state.lessons == 25:
            self.fit_shift()
        for i in range(CLASSES):
            self.model(self.hits + i * AGES, self.gone + i * AGES, self.density + i * AGES)

    cdef void model(self, const double* hits, const double* gone, double* density) noexcept nogil:
        """Expected hits over expected time still to come, at every age: sums from the oldest on."""
        cdef double all_hits = 0, events = 0, time = 0
        cdef int32_t age
        for age in range(AGES - 1, -1, -1):
            all_hits += hits[age]
            events += hits[age] + gone[age]
            time += events
            density[age] = all_hits / time if events > NOTHING else NOTHING

    cdef void fit_shift(self) noexcept nogil:
        """The coarsest steps that tell apart the ages of so many blocks, and the statistics in them."""
        cdef int32_t shift = 1
        cdef int32_t by, klass
        while <double>(<int64_t>1 << shift) < self.members.count[0] / (AGE_ERROR * AGES):
            shift += 1
        by = shift - self.state.shift
        self.state.shift = shift
        for klass in range(CLASSES):
            rescale(self.hits + klass * AGES, by)
            rescale(self.gone + klass * AGES, by)


cdef int32_t class_of(int32_t age, int32_t age_before) noexcept nogil:
    """0 for blocks with long gaps between uses; the more, the shorter."""
    cdef int32_t gaps = age + age_before
    cdef int32_t klass = 0
    if gaps == 0:
        return CLASSES - 1
    while gaps < AGES and klass < CLASSES - 1:
        gaps <<= 1
        klass += 1
    return klass


cdef void rescale(double* counts, int32_t by) noexcept nogil:
    """Ages in steps 2^by times as long; what falls off the end is forgotten."""
    cdef int32_t age
    cdef double count
    if by > 0:
        for age in range(1, AGES):
            count = counts[age]
            counts[age] = 0
            counts[age >> by] += count
    elif by < 0:
        for age in range(AGES - 1, -1, -1):
            counts[age] = counts[age >> -by] / (1 << -by)
