"""Per-id work on the rows of a trace: repeats inside a row, dense numbering, the dense claim.

All functions take plain buffers (typed memoryviews) and are safe on any content; a buffer whose
size or offsets do not fit raises ValueError before anything is read through it.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from kvbench.hashing cimport mix64
from kvbench.prefetch cimport prefetch

cdef Py_ssize_t AHEAD = 16


cdef struct Stamped:
    uint64_t value
    int64_t stamp


cdef struct Numbered:
    uint64_t value
    uint64_t number


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

    Memory is 16 bytes a slot of an open-addressing table that is at most 5/8 full and doubles. Values
    that come numbered so already take none, up to the first one that does not.
    """

    cdef Numbered* table
    cdef uint64_t slots
    cdef uint64_t used
    cdef uint64_t identical  # values below are their own numbers, and not in the table

    def __cinit__(self):
        self.slots = 1024
        self.used = 0
        self.identical = 0
        self.table = <Numbered*>calloc(self.slots, sizeof(Numbered))
        if self.table == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.table)

    def __len__(self) -> int:
        return self.used

    def intern(self, const uint64_t[::1] values, uint64_t[::1] out) -> None:
        """Write the number of each of ``values`` to ``out`` (of the same length)."""
        cdef Py_ssize_t index = 0
        cdef Py_ssize_t count = values.shape[0]
        if out.shape[0] != count:
            raise ValueError(f"out has room for {out.shape[0]} of {count} values")
        if self.used == self.identical:
            while index < count and values[index] <= self.identical:
                self.identical += values[index] == self.identical
                out[index] = values[index]
                index += 1
            self.used = self.identical
        while index < count:
            if index + AHEAD < count:
                prefetch(&self.table[mix64(values[index + AHEAD]) & (self.slots - 1)])
            out[index] = self.number(values[index])
            index += 1

    cdef uint64_t number(self, uint64_t value) except? 0xFFFFFFFFFFFFFFFF:
        cdef Numbered* slot
        if value < self.identical:
            return value
        slot = numbered_slot(self.table, self.slots, value)
        if slot.number == 0:
            if (self.used - self.identical + 1) * 8 > self.slots * 5:
                self.grow()
                slot = numbered_slot(self.table, self.slots, value)
            self.used += 1
            slot.value = value
            slot.number = self.used
        return slot.number - 1

    cdef int grow(self) except -1:
        cdef uint64_t wider = self.slots * 2
        cdef uint64_t index
        cdef Numbered* fresh = <Numbered*>calloc(wider, sizeof(Numbered))
        if fresh == NULL:
            raise MemoryError()
        for index in range(self.slots):
            if index + <uint64_t>AHEAD < self.slots:
                prefetch(&fresh[mix64(self.table[index + <uint64_t>AHEAD].value) & (wider - 1)])
            if self.table[index].number != 0:
                numbered_slot(fresh, wider, self.table[index].value)[0] = self.table[index]
        free(self.table)
        self.table = fresh
        self.slots = wider
        return 0


cdef inline Numbered* numbered_slot(Numbered* table, uint64_t slots, uint64_t value) noexcept nogil:
    # The slot that holds `value` (stored numbers start at 1), or the empty one where it belongs.
    cdef uint64_t index = mix64(value) & (slots - 1)
    while table[index].number != 0 and table[index].value != value:
        index = (index + 1) & (slots - 1)
    return &table[index]


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
