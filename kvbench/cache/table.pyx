"""Block tables: which slot holds the block with this key.

Two forms behind one interface. :class:`HashTable` takes any 64-bit keys and needs memory for
what is resident. :class:`DirectTable` is an array indexed by key, for traces whose ids are
dense; it needs four bytes for each distinct block of the trace, and is the faster one.

The owner of the slots (a tier, an index) keeps the key of each slot in an array and shows it to
its table with ``set_keys``; the table stores no keys of its own.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from kvbench.hashing cimport mix64
from kvbench.memory cimport large_calloc, large_realloc, no_memory
from kvbench.prefetch cimport prefetch

from kvbench.errors import PluginError

cdef enum:
    MAX_DENSE = 0x7fffffff
    AHEAD = 16  # keys between a prefetch and its use: enough to cover a memory access
    LEAD = 2    # keys of a request that are hashed before a run of slots is tried
    BATCH = 64  # keys that are hashed where there is none, until one is tried again


cdef int stands_twice(uint64_t key) except -1 nogil:
    """Raise the error for a key that is inserted while it is present: the one way in which a
    faulty token database could upset the account of a tier."""
    with gil:
        raise PluginError(
            f"key {key} stands twice in one request; a token database must give each block of a request its own key"
        )


cdef uint64_t dense_size(const uint64_t* keys, int64_t n, uint64_t size) except? 0 nogil:
    """The size that an array indexed by dense ids needs for these keys, grown by half at least.
    Raises PluginError for a key that cannot be a dense id."""
    cdef uint64_t largest = 0
    cdef int64_t i
    for i in range(n):
        if keys[i] > largest:
            largest = keys[i]
    if n == 0 or largest < size:
        return size
    if largest >= MAX_DENSE:
        with gil:
            raise PluginError(f"key {largest} is no dense id; a token database that says `dense` must number blocks")
    return max(largest + 1, size + size // 2)


cdef class BlockTable:
    """Interface of both forms; see the module."""

    cdef void set_keys(self, const uint64_t* keys) noexcept nogil:
        """Show the owner's slot → key array (again after it moved)."""
        self.keys = keys

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for lookups of these keys; called once for each batch."""
        return 0

    cdef int32_t find(self, uint64_t key) noexcept nogil:
        """The slot of ``key``, or a negative number (ABSENT …) if it is not resident."""
        return ABSENT

    cdef int64_t find_many(self, const uint64_t* keys, int64_t n, int64_t readable, int32_t* slots) noexcept nogil:
        """Write what ``find`` says of each of ``n`` keys and return how many are present.

        ``readable`` ≥ n keys may be read, to prefetch for the requests that follow.
        """
        return 0

    cdef int insert(self, uint64_t key, int32_t slot) except -1 nogil:
        """Add an absent key. Its entry in the owner's array must be written already. Raises
        PluginError if the key is present."""
        return 0

    cdef void remove(self, uint64_t key) noexcept nogil:
        """Remove a present key. Its entry in the owner's array must still be there."""

    cdef int insert_slots(self, const int32_t* slots, int64_t n) except -1 nogil:
        """``insert`` for the keys of ``n`` slots."""
        cdef int64_t i
        for i in range(n):
            self.insert(self.keys[slots[i]], slots[i])
        return 0

    cdef void remove_slots(self, const int32_t* slots, int64_t n) noexcept nogil:
        """``remove`` for the keys of ``n`` slots."""
        cdef int64_t i
        for i in range(n):
            self.remove(self.keys[slots[i]])


@cython.final
cdef class HashTable(BlockTable):
    """Open addressing, linear probing, at most half full, deletion by shifting back.

    An entry is 8 bytes: 32 bits of the key's hash and slot+1 (0: empty). The hash bits decide
    the home position too, so growing and shifting read no keys; a match is verified against
    the owner's array, so the answer is exact for any keys.
    """

    def __cinit__(self):
        self.bits = 10
        self.size = 1 << self.bits
        self.grow_at = self.size // 2
        self.used = 0
        self.entries = <uint64_t*>large_calloc(self.size, sizeof(uint64_t))
        if self.entries == NULL:
            no_memory("block table", self.size)

    def __dealloc__(self):
        free(self.entries)
        free(self.filled)

    cdef int32_t find(self, uint64_t key) noexcept nogil:
        return self.find_hashed(key, mix64(key) >> 32)

    cdef int32_t find_hashed(self, uint64_t key, uint64_t hashed) noexcept nogil:
        cdef uint64_t mask = self.size - 1
        cdef uint64_t at = hashed >> (32 - self.bits)
        cdef uint64_t entry
        cdef int32_t slot
        while True:
            entry = self.entries[at]
            if entry == 0:
                return ABSENT
            if entry >> 32 == hashed:
                slot = <int32_t>(entry & 0xffffffffULL) - 1
                if self.keys[slot] == key:
                    return slot
            at = (at + 1) & mask

    cdef int64_t find_many(self, const uint64_t* keys, int64_t n, int64_t readable, int32_t* slots) noexcept nogil:
        # A prompt that was stored in one go lies in neighbouring slots. So when two of its keys
        # are found side by side, the next ones are looked for where the owner would have put
        # them: a read of the owner's array, in order, instead of one of the table at random.
        # With 10 million resident blocks, hits of 64-block prompts take half the time.
        cdef int64_t at = 0, present = 0, batch = LEAD, followed
        cdef uint64_t next_home = 0
        cdef bint more = readable > n + 1
        if n <= LEAD:
            return self.find_each(keys, n, readable, slots)
        if more:
            next_home = mix64(keys[n]) >> (64 - self.bits)
            prefetch(&self.entries[next_home])
            prefetch(&self.entries[mix64(keys[n + 1]) >> (64 - self.bits)])
        while at < n:
            batch = min(batch, n - at)
            present += self.find_each(keys + at, batch, readable - at, slots + at)
            at += batch
            followed = self.follow_run(keys, at, n, slots)
            present += followed
            at += followed
            batch = BATCH
        if more:
            # The entry has arrived by now; what it points to is on its way while this request is served.
            prefetch(&self.keys[<int64_t>(self.entries[next_home] & 0xffffffffULL) - 1])
        return present

    cdef int64_t follow_run(self, const uint64_t* keys, int64_t at, int64_t n, int32_t* slots) noexcept nogil:
        """Write the slots of the keys from ``at`` on that lie where the last two point; returns how many."""
        cdef int64_t i, slot, step
        if at < 2 or at == n or slots[at - 2] < 0 or slots[at - 1] < 0:
            return 0
        step = slots[at - 1] - slots[at - 2]
        if step != 1 and step != -1:
            return 0
        slot = slots[at - 1] + step
        for i in range(8, min(n - at, 128), 8):  # 8 keys are a cache line
            prefetch(&self.keys[slot + step * i])
        for i in range(at, n):
            # An emptied slot may still have its key, so its bit is looked at too.
            if not self.is_filled(slot) or self.keys[slot] != keys[i]:
                return i - at
            slots[i] = <int32_t>slot
            slot += step
        return n - at

    cdef bint is_filled(self, int64_t slot) noexcept nogil:
        return 0 <= slot < self.known_slots and self.filled[slot >> 6] >> (slot & 63) & 1

    cdef int64_t find_each(self, const uint64_t* keys, int64_t n, int64_t readable, int32_t* slots) noexcept nogil:
        # The hashes of the next AHEAD keys of the request wait in a ring, so that each is
        # computed once, for the prefetch and for the probe.
        cdef uint64_t waiting[AHEAD]
        cdef uint64_t hashed
        cdef int64_t i, present = 0
        cdef int32_t slot
        for i in range(min(<int64_t>AHEAD, n)):
            hashed = mix64(keys[i]) >> 32
            waiting[i] = hashed
            prefetch(&self.entries[hashed >> (32 - self.bits)])
        for i in range(n):
            hashed = waiting[i % AHEAD]
            if i + AHEAD < n:
                waiting[i % AHEAD] = mix64(keys[i + AHEAD]) >> 32
                prefetch(&self.entries[waiting[i % AHEAD] >> (32 - self.bits)])
            elif i + AHEAD < readable:
                prefetch(&self.entries[mix64(keys[i + AHEAD]) >> (64 - self.bits)])
            slot = self.find_hashed(keys[i], hashed)
            slots[i] = slot
            present += slot >= 0
        return present

    cdef int insert(self, uint64_t key, int32_t slot) except -1 nogil:
        cdef uint64_t hashed = mix64(key) >> 32
        cdef uint64_t mask, at
        if self.used >= self.grow_at:
            self.grow()
        if slot >= self.known_slots:
            self.know_slots(slot)
        mask = self.size - 1
        at = hashed >> (32 - self.bits)
        while self.entries[at] != 0:
            if self.entries[at] >> 32 == hashed and self.keys[<int32_t>(self.entries[at] & 0xffffffffULL) - 1] == key:
                return stands_twice(key)
            at = (at + 1) & mask
        self.entries[at] = hashed << 32 | <uint32_t>(slot + 1)
        self.used += 1
        self.filled[slot >> 6] |= <uint64_t>1 << (slot & 63)
        return 0

    cdef int know_slots(self, int64_t slot) except -1 nogil:
        """Have a bit for each slot up to this one."""
        cdef int64_t words = max(slot + 1, 2 * self.known_slots + 1024) // 64 + 1
        cdef uint64_t* filled = <uint64_t*>large_realloc(self.filled, words * sizeof(uint64_t))
        if filled == NULL:
            no_memory("block table", words)
        memset(filled + self.known_slots // 64, 0, (words - self.known_slots // 64) * sizeof(uint64_t))
        self.filled = filled
        self.known_slots = 64 * words
        return 0

    cdef void remove(self, uint64_t key) noexcept nogil:
        self.remove_hashed(key, mix64(key) >> 32)

    cdef void remove_slots(self, const int32_t* slots, int64_t n) noexcept nogil:
        # Victims are cold: without the prefetch each costs a memory access of its own.
        cdef uint64_t waiting[AHEAD]
        cdef uint64_t hashed
        cdef int64_t i
        for i in range(min(<int64_t>AHEAD, n)):
            waiting[i] = mix64(self.keys[slots[i]]) >> 32
            prefetch(&self.entries[waiting[i] >> (32 - self.bits)])
        for i in range(n):
            hashed = waiting[i % AHEAD]
            if i + AHEAD < n:
                waiting[i % AHEAD] = mix64(self.keys[slots[i + AHEAD]]) >> 32
                prefetch(&self.entries[waiting[i % AHEAD] >> (32 - self.bits)])
            self.remove_hashed(self.keys[slots[i]], hashed)

    cdef void remove_hashed(self, uint64_t key, uint64_t hashed) noexcept nogil:
        cdef uint64_t mask = self.size - 1
        cdef uint64_t at = hashed >> (32 - self.bits)
        cdef uint64_t hole, home, entry, slot
        while self.entries[at] >> 32 != hashed or self.keys[<int32_t>(self.entries[at] & 0xffffffffULL) - 1] != key:
            at = (at + 1) & mask
        slot = (self.entries[at] & 0xffffffffULL) - 1
        self.filled[slot >> 6] &= ~(<uint64_t>1 << (slot & 63))
        # Shift back every following entry whose home is at or before the hole, so that no
        # probe ever meets a gap it must look past: there are no tombstones to wade through.
        hole = at
        while True:
            at = (at + 1) & mask
            entry = self.entries[at]
            if entry == 0:
                break
            home = (entry >> 32) >> (32 - self.bits)
            if ((at - home) & mask) >= ((at - hole) & mask):
                self.entries[hole] = entry
                hole = at
        self.entries[hole] = 0
        self.used -= 1

    cdef int grow(self) except -1 nogil:
        cdef int64_t old_size = self.size
        cdef uint64_t* old = self.entries
        cdef uint64_t* entries
        cdef uint64_t at, mask = 2 * self.size - 1
        cdef int64_t i
        if self.bits == 32:
            no_memory("block table", 2 * self.size)
        entries = <uint64_t*>large_calloc(2 * old_size, sizeof(uint64_t))
        if entries == NULL:
            no_memory("block table", 2 * old_size)
        self.bits += 1
        for i in range(old_size):
            if old[i] != 0:
                at = (old[i] >> 32) >> (32 - self.bits)
                while entries[at] != 0:
                    at = (at + 1) & mask
                entries[at] = old[i]
        self.entries = entries
        self.size = 2 * old_size
        self.grow_at = old_size
        free(old)
        return 0


@cython.final
cdef class DirectTable(BlockTable):
    """``slots[key]``, grown to the largest key of each batch. Keys must be dense.

    The entry of a block that is gone tells why, so that a tier of its own needs no other memory
    of the keys ever seen (see :class:`kvbench.cache.seen.TableSeen`).
    """

    def __cinit__(self):
        self.size = 0
        self.slots = NULL

    def __dealloc__(self):
        free(self.slots)

    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        cdef uint64_t size = dense_size(keys, n, self.size)
        cdef int32_t* slots
        if size == self.size:
            return 0
        slots = <int32_t*>large_realloc(self.slots, size * sizeof(int32_t))
        if slots == NULL:
            no_memory("block table of dense ids", size)
        memset(slots + self.size, 0xff, (size - self.size) * sizeof(int32_t))
        self.slots = slots
        self.size = size
        return 0

    cdef int32_t find(self, uint64_t key) noexcept nogil:
        return self.slots[key] if key < self.size else ABSENT

    cdef int64_t find_many(self, const uint64_t* keys, int64_t n, int64_t readable, int32_t* slots) noexcept nogil:
        cdef int64_t i, present = 0
        cdef int32_t slot
        cdef const int32_t* table = self.slots
        for i in range(n):
            if i + AHEAD < readable:
                prefetch(&table[keys[i + AHEAD]])
            slot = table[keys[i]]
            slots[i] = slot
            present += slot >= 0
        return present

    cdef int insert(self, uint64_t key, int32_t slot) except -1 nogil:
        if self.slots[key] >= 0:
            return stands_twice(key)
        self.slots[key] = slot
        return 0

    cdef void remove(self, uint64_t key) noexcept nogil:
        self.slots[key] = ABSENT_EVICTED

    cdef int insert_slots(self, const int32_t* slots, int64_t n) except -1 nogil:
        cdef int64_t i
        for i in range(n):
            if self.slots[self.keys[slots[i]]] >= 0:
                return stands_twice(self.keys[slots[i]])
            self.slots[self.keys[slots[i]]] = slots[i]
        return 0

    cdef void remove_slots(self, const int32_t* slots, int64_t n) noexcept nogil:
        cdef int64_t i
        for i in range(n):
            if i + AHEAD < n:
                prefetch(&self.slots[self.keys[slots[i + AHEAD]]])
            self.slots[self.keys[slots[i]]] = ABSENT_EVICTED


cpdef BlockTable make_table(bint dense):
    """A :class:`DirectTable` for dense keys, else a :class:`HashTable`."""
    return DirectTable() if dense else HashTable()
