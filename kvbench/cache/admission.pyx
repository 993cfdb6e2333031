"""Admission filters: may a block enter a tier?

A filter is asked for the blocks of one request that the tier would store, once, and answers for
each. It is asked again each time a block is offered, whether or not it was admitted before.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.eviction.ghost cimport ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.hashing cimport mix64
from kvbench.memory cimport UInt64Memory, no_memory
from libc.string cimport memcpy, memset

from kvbench.errors import PolicyError
from kvbench.eviction.policy import PolicyContext

cdef enum:
    ROWS = 4           # hashes of a key in the sketch
    LARGEST = 15       # of a counter of the sketch
    SAMPLES_A_CELL = 10


class AdmissionContext:
    """What a filter is told when it is made: the ``capacity`` of its tier in blocks (None without
    bound) and the ``seed`` of its own random stream."""

    __slots__ = ("capacity", "seed")

    def __init__(self, capacity: int | None, seed: int = 0) -> None:
        self.capacity = capacity
        self.seed = seed


cdef class AdmissionFilter:
    """Base of all filters; admits everything. Python classes derive from :class:`PythonAdmission`."""

    def __cinit__(self, context, *args, **kwargs):
        self.asks_presence = False

    cdef int admit_keys(self, const uint64_t* keys, int32_t n, uint8_t* admitted) except -1 nogil:
        """Write for each of ``n`` keys whether it may enter."""
        memset(admitted, 1, n)
        return 0


@cython.final
cdef class Presence(AdmissionFilter):
    """Admits what the tier has not; what it has is not offered, so no duplicate is ever counted.

    Source: KVBM's default offload filter (E-60).
    """

    def __cinit__(self, context):
        self.asks_presence = True


@cython.final
cdef class MinCount(AdmissionFilter):
    """Admits a block at its ``n``-th offer and later.

    Remembers the offers of the ``tracked`` keys offered last. Source: ``store_threshold`` of vLLM's
    offloading (E-43), with its 64,000 keys.
    """

    def __cinit__(self, context, *, int n=2, int tracked=64_000):
        self.count = n
        self.memory = EvictionPolicy(PolicyContext(tracked))
        ghost_init(&self.offers, self.memory, tracked)

    cdef int admit_keys(self, const uint64_t* keys, int32_t n, uint8_t* admitted) except -1 nogil:
        cdef int32_t i, entry, offers
        for i in range(n):
            entry = ghost_find(&self.offers, keys[i])
            offers = 1
            if entry != 0:
                offers = min(self.offers.values[entry] + 1, self.count)
                ghost_remove(&self.offers, entry)
            ghost_push(&self.offers, keys[i], offers)
            admitted[i] = offers >= self.count
        return 0


@cython.final
cdef class TinyLfu(AdmissionFilter):
    """Admits a block whose offers, as a frequency sketch counts them, are at least ``min_count``.

    A count-min sketch of ``counters`` counters up to 15, all halved after ten offers a counter.
    Source: Einziger, Friedman, Manes, "TinyLFU", ACM ToS 2017; KVBM's ``presence_lfu`` (E-60) has
    2²¹ counters and wants 8 offers.
    """

    def __cinit__(self, context, *, int min_count=8, long counters=1 << 21):
        self.asks_presence = True
        self.count = min_count
        self.cells = max(<uint64_t>counters // ROWS, 1)
        self.sample = SAMPLES_A_CELL * self.cells
        self.counters = <uint8_t*>calloc(self.cells * ROWS, sizeof(uint8_t))
        if self.counters == NULL:
            no_memory("frequency sketch", counters)

    def __dealloc__(self):
        free(self.counters)

    cdef int admit_keys(self, const uint64_t* keys, int32_t n, uint8_t* admitted) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            admitted[i] = self.offer(keys[i]) >= self.count
        return 0

    cdef int offer(self, uint64_t key) noexcept nogil:
        """Count one more offer of ``key`` and return the estimate."""
        cdef uint64_t hashed = mix64(key)
        cdef uint64_t at
        cdef uint8_t* cell
        cdef int row, least = LARGEST
        for row in range(ROWS):
            at = mix64(hashed + row) % self.cells
            cell = &self.counters[row * self.cells + at]
            if cell[0] < LARGEST:
                cell[0] += 1
            least = min(least, cell[0])
        self.seen += 1
        if self.seen == self.sample:
            self.seen = 0
            for at in range(self.cells * ROWS):
                self.counters[at] >>= 1
        return least


cdef class PythonAdmission(AdmissionFilter):
    """A filter written in Python. Override ``admit``.

    The constructor takes the :class:`AdmissionContext` and the declared parameters by keyword.
    """

    def __init__(self, context):
        pass

    def admit(self, keys):
        """For each of ``keys`` (a read-only buffer of 64-bit integers, good until the method
        returns), in order: may it enter? Returns as many truth values."""
        raise NotImplementedError(f"{type(self).__name__} must define admit(keys)")

    cdef object answers(self, const uint64_t* keys, int32_t n):
        cdef UInt64Memory copied = UInt64Memory(n)
        memcpy(copied.data, keys, n * sizeof(uint64_t))
        answers = list(self.admit(memoryview(copied)[:n]))
        if len(answers) != n:
            raise PolicyError(f"{type(self).__name__}.admit answered {len(answers)} times for {n} keys")
        return answers

    cdef int admit_keys(self, const uint64_t* keys, int32_t n, uint8_t* admitted) except -1 nogil:
        cdef int32_t i
        with gil:
            for i, answer in enumerate(self.answers(keys, n)):
                admitted[i] = bool(answer)
        return 0
