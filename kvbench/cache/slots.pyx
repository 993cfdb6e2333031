"""The slots of a tier: which are free, which block is in each, who refers to it.

This half of a tier knows nothing of requests or order. It hands out slots and takes them back,
keeps the block table and the event log in step, and counts.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kvbench.cache.events cimport DELETE, NO_EVENT, REMOVED, Event, EventLog
from kvbench.cache.table cimport BlockTable, DirectTable, make_table
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.view cimport TierView
from kvbench.memory cimport Int32Memory, UInt64Memory, no_memory

from kvbench.errors import ConfigError

cdef enum:
    MAX_SLOTS = 1073741825  # 2^30 blocks and a spare slot
    FIRST_SLOTS = 4096


cdef class SlotStore:
    """Base of :class:`kvbench.cache.tier.Tier`, which says what the arguments are."""

    def __cinit__(self, EvictionPolicy policy=None, *, bint dense=False, EventLog log=None, int32_t worker=0,
                  int32_t store=-1, int level=0, str name="gpu", **kwargs):
        self.name = name
        self.worker = worker
        self.store = worker if store < 0 else store
        self.level = level
        self.log = log
        self.policy = policy
        self.limited = policy is not None
        self.limit = policy.capacity if self.limited else MAX_SLOTS
        if not 0 < self.limit <= MAX_SLOTS:
            raise ConfigError(f"a tier holds 1 to {MAX_SLOTS - 1:,} blocks, not {self.limit:,}")
        self.size = FIRST_SLOTS
        if self.limited:
            self.size = self.limit + 1 if policy.insert_first else self.limit
        self.free_slots = <int32_t*>calloc(self.size, sizeof(int32_t))
        if self.free_slots == NULL:
            raise MemoryError(f"cannot allocate a tier of {self.size:,} blocks")
        self.view = TierView(self.size)
        self.keys = self.view.keys_memory.data
        self.refs = self.view.refs_memory.data
        self.table = make_table(dense)
        self.table.set_keys(self.keys)
        if self.limited:
            policy.bind(self.view)

    def __dealloc__(self):
        free(self.free_slots)

    @property
    def capacity(self):
        """Blocks that fit, or None without bound."""
        return self.limit if self.limited else None

    @property
    def direct_table(self):
        """The tier's table if it is a direct one, else None."""
        return self.table if isinstance(self.table, DirectTable) else None

    @cython.final
    cdef int reserve(self, const uint64_t* keys, int64_t n) except -1 nogil:
        """Get ready for a batch of keys."""
        return self.table.reserve(keys, n)

    @cython.final
    cdef bint holds(self, int32_t slot, uint64_t key) noexcept nogil:
        return self.refs[slot] > 0 and self.keys[slot] == key

    @cython.final
    cdef int32_t take_slot(self, uint64_t key) noexcept nogil:
        """A slot for ``key``; the caller enters it in the table."""
        # Emptied slots are used again in the order in which they were emptied: a chain that is
        # evicted run by run hands neighbouring slots to the next chain, which keeps sweeps
        # sequential in memory.
        cdef int32_t slot
        if self.free_count > 0:
            slot = self.free_slots[self.free_head]
            self.free_head += 1
            if self.free_head == self.size:
                self.free_head = 0
            self.free_count -= 1
        else:
            slot = self.fresh
            self.fresh += 1
        self.keys[slot] = key
        self.refs[slot] = 1
        self.used += 1
        return slot

    @cython.final
    cdef int release_slots(self, const int32_t* slots, int32_t n, int reason) except -1 nogil:
        """Empty ``n`` slots whose blocks have no reference any more."""
        cdef int32_t i, tail
        self.table.remove_slots(slots, n)
        # free_head + free_count may pass 2^31, so the wrap is computed by subtraction.
        if self.free_count < self.size - self.free_head:
            tail = self.free_head + self.free_count
        else:
            tail = self.free_count - (self.size - self.free_head)
        for i in range(n):
            self.free_slots[tail] = slots[i]
            tail += 1
            if tail == self.size:
                tail = 0
            if self.log is not None and reason != NO_EVENT:
                self.record(DELETE, reason, self.keys[slots[i]], False, 0)
        self.free_count += n
        self.used -= n
        return 0

    cdef Event* record(self, int kind, int reason, uint64_t key, bint has_parent, uint64_t parent) except NULL nogil:
        cdef Event* event = self.log.append(self.worker)
        event.request = self.view.request.index
        event.key = key
        event.parent = parent
        event.store = self.store
        event.kind = kind
        event.reason = reason
        event.has_parent = has_parent
        event.tier = self.level
        return event

    @cython.final
    cdef int fit_slots(self, int64_t wanted) except -1 nogil:
        """Grow a tier without bound. It evicts nothing, but blocks may have been removed; fresh
        slots are needed only when no emptied one is left, so the ring is empty when it moves."""
        cdef int64_t size = self.size
        if wanted <= size:
            return 0
        while size < wanted:
            size *= 2
        if size > MAX_SLOTS:
            no_memory("tier", size)
        with gil:
            self.compact_ring(size)
            self.move_slots(size)
        self.size = <int32_t>size
        return 0

    cdef move_slots(self, int64_t size):
        cdef Int32Memory refs = Int32Memory(size)
        cdef UInt64Memory keys = UInt64Memory(size)
        memcpy(refs.data, self.refs, self.size * sizeof(int32_t))
        memcpy(keys.data, self.keys, self.size * sizeof(uint64_t))
        self.view.refs_memory = refs
        self.view.keys_memory = keys
        self.view.refs = self.refs = refs.data
        self.view.keys = self.keys = keys.data
        self.table.set_keys(self.keys)

    @cython.final
    cdef compact_ring(self, int64_t size):
        cdef int32_t* ring = <int32_t*>calloc(size, sizeof(int32_t))
        cdef int32_t i
        if ring == NULL:
            no_memory("tier", size)
        for i in range(self.free_count):
            ring[i] = self.free_slots[(<int64_t>self.free_head + i) % self.size]
        free(self.free_slots)
        self.free_slots = ring
        self.free_head = 0

    # -- invariants ----------------------------------------------------------------------------

    @cython.final
    cdef int check(self) except -1 nogil:
        """Semantics §13 in a debug build: counts at every request, all slots where that is cheap."""
        if not 0 <= self.pinned <= self.used <= self.limit:
            with gil:
                raise AssertionError(f"tier {self.name}: pinned {self.pinned}, used {self.used}, limit {self.limit}")
        if self.size <= 512:
            with gil:
                self.verify()
        return 0

    def verify(self):
        """Walk everything and raise AssertionError where the account does not hold."""
        cdef int32_t slot, used = 0, pinned = 0
        for slot in range(self.fresh):
            if self.refs[slot] == 0:
                continue
            used += 1
            pinned += self.refs[slot] > 1
            assert self.table.find(self.keys[slot]) == slot, f"slot {slot} is not where the table says"
        assert used == self.used, f"{used} resident blocks, {self.used} counted"
        assert pinned == self.pinned, f"{pinned} pinned blocks, {self.pinned} counted"
        assert used + self.free_count == self.fresh, "slots were lost"
        assert not self.limited or self.used <= self.limit, "more blocks than fit"

    # -- from Python ---------------------------------------------------------------------------

    def probe(self, const uint64_t[::1] keys):
        """The prefix hit of these keys in blocks; changes nothing (semantics §4.3)."""
        cdef int32_t i = 0
        while i < keys.shape[0] and self.table.find(keys[i]) >= 0:
            i += 1
        return i

    def pin(self, const uint64_t[::1] keys):
        """Pin the leading resident blocks of ``keys`` and return how many; each pin needs an unpin."""
        cdef int32_t i, slot, n = self.probe(keys)
        for i in range(n):
            slot = self.table.find(keys[i])
            self.pinned += self.refs[slot] == 1
            self.refs[slot] += 1
        return n

    def unpin(self, const uint64_t[::1] keys):
        """Take one pin off each of ``keys``. Raises ValueError, and changes nothing, if one has none."""
        cdef int32_t i, j, slot
        self.view.stirs += 1
        for i in range(<int32_t>keys.shape[0]):
            slot = self.table.find(keys[i])
            if slot < 0 or self.refs[slot] < 2:
                for j in range(i):
                    slot = self.table.find(keys[j])
                    self.pinned += self.refs[slot] == 1
                    self.refs[slot] += 1
                raise ValueError(f"key {keys[i]} is not pinned in tier {self.name}")
            self.refs[slot] -= 1
            self.pinned -= self.refs[slot] == 1

    def remove(self, const uint64_t[::1] keys):
        """Drop those of ``keys`` that are resident and not pinned; returns how many."""
        cdef int32_t i, slot, removed = 0
        for i in range(<int32_t>keys.shape[0]):
            slot = self.table.find(keys[i])
            if slot < 0 or self.refs[slot] != 1:
                continue
            if self.limited:
                self.policy.remove_slots(&slot, 1)
            self.refs[slot] = 0
            self.release_slots(&slot, 1, REMOVED)
            removed += 1
        return removed

    def references(self):
        """Pins on all blocks."""
        cdef int32_t slot
        cdef int64_t pins = 0
        for slot in range(self.fresh):
            pins += max(self.refs[slot] - 1, 0)
        return pins

    def residents(self):
        """The keys of all resident blocks, in slot order."""
        return [self.keys[slot] for slot in range(self.fresh) if self.refs[slot] > 0]
