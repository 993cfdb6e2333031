"""Per-id work on the rows of a trace: repeats inside a row, dense numbering, the dense claim.

All functions take plain buffers (typed memoryviews) and are safe on any content; a buffer whose
size or offsets do not fit raises ValueError before anything is read through it.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from kvbench.hashing cimport mix64, mulhi64
from kvbench.memory cimport large_calloc, large_realloc
from kvbench.prefetch cimport prefetch

cdef enum:
    AT_ONCE = 64  # values whose places are fetched into the cache together
    HASH_BITS = 32
    FIRST_SLOT_BITS = 10


cdef struct Stamped:
    uint64_t value
    int64_t stamp


def first_repeat_rows(
    const uint64_t[::1] values, const int64_t[::1] offsets, uint8_t[::1] out_bad
) -> int:
    """Mark in ``out_bad`` each row that holds a value twice; return how many there are.

    Row r is ``values[offsets[r]:offsets[r + 1]]``. ``out_bad`` has one byte a row and is set to
    0 or 1. Raises ValueError when the offsets do not lie in order inside ``values``.
    """
    cdef Py_ssize_t rows = offsets.shape[0] - 1
    cdef Py_ssize_t row, longest = 0
    cdef int64_t begin, end
    cdef Stamped* table
    cdef uint64_t slots
    cdef Py_ssize_t bad = 0
    if rows < 0:
        raise ValueError("offsets is empty; n rows need n + 1 offsets")
    if out_bad.shape[0] != rows:
        raise ValueError(f"out_bad has {out_bad.shape[0]} bytes for {rows} rows")
    for row in range(rows):
        begin, end = offsets[row], offsets[row + 1]
        if not 0 <= begin <= end <= values.shape[0]:
            raise ValueError(f"offsets of row {row} are {begin} and {end} in {values.shape[0]} values")
        out_bad[row] = 0
        # A row that rises strictly holds nothing twice, and most rows do; 2 marks the others.
        if not rises(values, begin, end):
            out_bad[row] = 2
            longest = max(longest, end - begin)
    if longest == 0:
        return 0
    slots = table_size(longest)
    table = <Stamped*>calloc(slots, sizeof(Stamped))
    if table == NULL:
        raise MemoryError()
    for row in range(rows):
        if out_bad[row] == 2:
            out_bad[row] = repeats(values, offsets[row], offsets[row + 1], table, row + 1)
            bad += out_bad[row]
    free(table)
    return bad


def first_undense(const uint64_t[::1] values, uint64_t known) -> tuple[int, int]:
    """Check that ``values`` number things 0, 1, 2, … in first-seen order.

    ``known`` is how many numbers were seen before. Returns ``(index, known)``: the index of the
    first value that is greater than the count so far (-1 when there is none), and the new count.
    """
    cdef Py_ssize_t index
    for index in range(values.shape[0]):
        if values[index] >= known:
            if values[index] > known:
                return index, known
            known += 1
    return -1, known


cdef class Interner:
    """Numbers 64-bit values 0, 1, 2, … in first-seen order.

    Memory is 8 bytes a value and 8 bytes a slot of an open-addressing table that is at most 5/8 full and
    doubles. Values that come numbered so already take none, up to the first one that does not. Raises
    OverflowError for more than 2.6 thousand million others.
    """

    # A slot has the hash of its value above, and its number from 1 below; 0 is an empty one. The first bits of
    # the hash are where it belongs, so the table grows in the order of its slots; the others tell nearly
    # always that a slot has another value, without looking that up.
    cdef uint64_t* table
    cdef uint64_t* values  # by number
    cdef uint64_t slots
    cdef int shift
    cdef uint64_t used
    cdef uint64_t identical  # values below are their own numbers, and not in the table

    def __cinit__(self):
        self.slots = 1 << FIRST_SLOT_BITS
        self.shift = HASH_BITS - FIRST_SLOT_BITS
        self.used = 0
        self.identical = 0
        self.table = <uint64_t*>calloc(self.slots, sizeof(uint64_t))
        self.values = <uint64_t*>malloc(fill(self.slots) * sizeof(uint64_t))
        if self.table == NULL or self.values == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.table)
        free(self.values)

    def __len__(self) -> int:
        return self.used

    def intern(self, const uint64_t[::1] values, uint64_t[::1] out) -> None:
        """Write the number of each of ``values`` to ``out`` (of the same length)."""
        cdef Py_ssize_t index = 0
        cdef Py_ssize_t count = values.shape[0]
        cdef Py_ssize_t ahead, at
        cdef uint32_t hashes[AT_ONCE]
        if out.shape[0] != count:
            raise ValueError(f"out has room for {out.shape[0]} of {count} values")
        if self.used == self.identical:
            while index < count and values[index] <= self.identical:
                self.identical += values[index] == self.identical
                out[index] = values[index]
                index += 1
            self.used = self.identical
        while index < count:
            ahead = min(count - index, AT_ONCE)
            for at in range(ahead):
                hashes[at] = hash32(values[index + at])
                prefetch(&self.table[hashes[at] >> self.shift])
            for at in range(ahead):
                out[index + at] = self.number(values[index + at], hashes[at])
            index += ahead

    cdef inline uint64_t number(self, uint64_t value, uint32_t hashed) except? 0xFFFFFFFFFFFFFFFF:
        cdef uint64_t index = hashed >> self.shift
        cdef uint64_t slot = self.table[index]
        if value < self.identical:
            return value
        while slot != 0:
            if slot >> 32 == hashed and self.values[<uint32_t>slot - 1] == value:
                return self.identical + <uint32_t>slot - 1
            index = (index + 1) & (self.slots - 1)
            slot = self.table[index]
        if self.used - self.identical == fill(self.slots):
            self.grow()
            index = empty_slot(self.table, self.slots, hashed >> self.shift)
        self.values[self.used - self.identical] = value
        self.used += 1
        self.table[index] = <uint64_t>hashed << 32 | (self.used - self.identical)
        return self.used - 1

    cdef int grow(self) except -1:
        cdef uint64_t index, at
        cdef uint64_t wider = self.slots * 2
        cdef uint64_t taken[AT_ONCE]
        cdef int count
        cdef uint64_t* values
        cdef uint64_t* fresh
        if self.shift == 0:
            raise OverflowError(f"there are more than {self.used} different ids, and no more can be told apart")
        values = <uint64_t*>large_realloc(self.values, fill(wider) * sizeof(uint64_t))
        if values == NULL:
            raise MemoryError()
        self.values = values
        fresh = <uint64_t*>large_calloc(wider, sizeof(uint64_t))
        if fresh == NULL:
            raise MemoryError()
        self.shift -= 1
        for index in range(0, self.slots, AT_ONCE):
            count = 0
            for at in range(index, index + AT_ONCE):
                taken[count] = self.table[at]
                count += self.table[at] != 0
            for at in range(count):
                fresh[empty_slot(fresh, wider, (taken[at] >> 32) >> self.shift)] = taken[at]
        free(self.table)
        self.table = fresh
        self.slots = wider
        return 0


cdef inline uint32_t hash32(uint64_t value) noexcept nogil:
    # Both halves of one product, folded: the low one spreads small differences, the high one large ones.
    cdef uint64_t mixed = value ^ 0x9e3779b97f4a7c15ULL
    return (mulhi64(mixed, 0xd6e8feb86659fd93ULL) ^ mixed * 0xd6e8feb86659fd93ULL) >> 32


cdef inline uint64_t empty_slot(const uint64_t* table, uint64_t slots, uint64_t index) noexcept nogil:
    # The first empty slot from `index` on.
    while table[index] != 0:
        index = (index + 1) & (slots - 1)
    return index


cdef inline uint64_t fill(uint64_t slots) noexcept nogil:
    # So many of `slots` are used at most.
    return slots // 8 * 5


cdef inline uint64_t table_size(uint64_t values) noexcept nogil:
    # A power of two that `values` fill to half at most.
    cdef uint64_t slots = 8
    while slots < 2 * values:
        slots *= 2
    return slots


cdef inline bint rises(const uint64_t[::1] values, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t index
    for index in range(begin + 1, end):
        if values[index] <= values[index - 1]:
            return False
    return True


cdef inline uint8_t repeats(
    const uint64_t[::1] values, int64_t begin, int64_t end, Stamped* table, int64_t stamp
) noexcept nogil:
    # Slots with an older stamp are free, so the table is never cleared. A short row uses only the
    # head of it, to stay in the cache.
    cdef uint64_t mask = table_size(end - begin) - 1
    cdef uint64_t slot
    cdef int64_t index
    for index in range(begin, end):
        slot = mix64(values[index]) & mask
        while table[slot].stamp == stamp:
            if table[slot].value == values[index]:
                return 1
            slot = (slot + 1) & mask
        table[slot].stamp = stamp
        table[slot].value = values[index]
    return 0
