"""Tenant LRU: tenants share the tier by quota, and each has an LRU of its own.

Source: LMCache 0.5.6 IsolatedLRU (E-64), with quotas that lend: a tenant may use room that nobody
needs, and gives it back first. A tenant over its quota evicts its own blocks, in the middle of a
request if need be; one within its quota evicts those of the tenant that has most. So no tenant
falls below its quota through others. ``share`` is each tenant's part of the tier; a trace with
more tenants than parts is refused. ``share = 0`` is an even part for each tenant seen so far in
the trace. ``quotas`` instead has the blocks of each tenant, by its number; who has none has a
quota of 0 and lives on what is lent. Requests without a tenant count as one more. A block belongs to who stored it. Cost:
O(log tenants) a stored or evicted block, O(1) a touched one; some 90 bytes a slot.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from kvbench.eviction.ghost cimport Ghost, ghost_find, ghost_init, ghost_push, ghost_remove
from kvbench.eviction.heap cimport Heap, heap_init, heap_push, heap_remove, heap_size, heap_update
from kvbench.eviction.policy cimport EvictionPolicy
from kvbench.eviction.queues cimport queue_evictable, queue_move, queue_push, queues_make
from kvbench.eviction.slotlist cimport Node, list_unlink

from kvbench.errors import ConfigError, PolicyError


cdef struct TenantCounts:
    int32_t tenants    # highest number seen, plus one
    bint nameless      # there were requests without a tenant
    int64_t clock


@cython.final
cdef class TenantLru(EvictionPolicy):
    """A newcomer is inserted first, so that it competes with the blocks of its own tenant."""

    cdef double share
    cdef list given         # quotas by tenant number, or empty
    cdef bint has_given
    cdef int32_t* quotas    # queue -> quota of its tenant, 0 without given ones
    cdef int32_t slots
    cdef Node* queues       # one for each tenant with resident blocks
    cdef Ghost numbers      # tenant -> its queue; as many as there are slots, so it forgets none
    cdef Heap heap          # queues, the longest first
    cdef int32_t* lengths
    cdef int32_t* owners    # slot -> queue
    cdef TenantCounts* counts

    def __cinit__(self, context, *, double share=0.0, str quotas=""):
        if not 0 <= share <= 1:
            raise ConfigError(f"tenant-lru: share is a part of the tier, from 0 to 1, not {share:g}")
        self.given = parse_quotas(quotas, self.capacity)
        self.has_given = len(self.given) > 0
        if self.given and share:
            raise ConfigError("tenant-lru: share and quotas both say what a tenant has; give one of them")
        self.one_by_one = self.insert_first = True
        self.share = share
        self.slots = self.capacity + 1
        self.queues = queues_make(self, self.slots, self.slots + 1)
        ghost_init(&self.numbers, self, self.slots)
        heap_init(&self.heap, self, self.slots + 1)
        self.lengths = <int32_t*>self.allocate(self.slots + 1, sizeof(int32_t))
        self.quotas = <int32_t*>self.allocate(self.slots + 1, sizeof(int32_t))
        self.owners = <int32_t*>self.allocate(self.slots, sizeof(int32_t))
        self.counts = <TenantCounts*>self.allocate(1, sizeof(TenantCounts))

    cdef int meet(self, int32_t tenant) except -1 nogil:
        cdef int32_t met
        self.counts.nameless = self.counts.nameless or tenant < 0
        self.counts.tenants = max(self.counts.tenants, tenant + 1)
        met = self.counts.tenants + self.counts.nameless
        if met * self.share > 1 + 1e-9:
            with gil:
                raise PolicyError(
                    f"tenant-lru: {met} tenants with share = {self.share:g} each have quotas of more than the tier; "
                    f"give at most {1 / met:.4g}, or 0 for even parts"
                )
        return 0

    cdef int32_t quota(self, int32_t queue) noexcept nogil:
        if self.has_given:
            return self.quotas[queue]
        if self.share > 0:
            return <int32_t>(self.share * self.capacity + 1e-9)
        return self.capacity // (self.counts.tenants + self.counts.nameless)

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        self.meet(self.view.request.tenant)
        for i in range(n):
            queue_move(self.queues, self.slots + self.owners[slots[i]], slots[i])
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef uint64_t tenant = <uint64_t>(<int64_t>self.view.request.tenant + 1)
        cdef int32_t i, queue
        self.meet(self.view.request.tenant)
        queue = ghost_find(&self.numbers, tenant)
        if queue == 0:
            queue = ghost_push(&self.numbers, tenant, 0)
            if self.has_given:
                self.look_up_quota(queue)
            self.counts.clock += 1
            heap_push(&self.heap, queue, 0, self.counts.clock)
        for i in range(n):
            self.owners[slots[i]] = queue
            queue_push(self.queues, self.slots + queue, slots[i])
        self.lengths[queue] += n
        self.rank(queue)
        return 0

    cdef int look_up_quota(self, int32_t queue) except -1 nogil:
        with gil:
            tenant = self.view.request.tenant
            self.quotas[queue] = self.given[tenant] if 0 <= tenant < len(self.given) else 0
        return 0

    cdef void rank(self, int32_t queue) noexcept nogil:
        # Who is farthest above its quota gives first; with even quotas that is who has most.
        cdef int64_t over = self.lengths[queue] - self.quotas[queue]
        heap_update(&self.heap, queue, -over, self.heap.entries[self.heap.positions[queue]].tie)

    cdef void forget(self, int32_t slot) noexcept nogil:
        cdef int32_t queue = self.owners[slot]
        list_unlink(self.queues, slot)
        self.lengths[queue] -= 1
        if self.lengths[queue] == 0:
            heap_remove(&self.heap, queue)
            ghost_remove(&self.numbers, queue)
        else:
            self.rank(queue)

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        cdef int32_t i
        for i in range(n):
            self.forget(slots[i])
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        cdef int32_t slot
        while found < n:
            slot = self.choose()
            if slot < 0:
                break
            self.forget(slot)
            victims[found] = slot
            found += 1
        return found

    cdef int32_t choose(self) noexcept nogil:
        cdef int32_t own = ghost_find(&self.numbers, <uint64_t>(<int64_t>self.view.request.tenant + 1))
        cdef int32_t i, slot
        if own != 0 and self.lengths[own] > self.quota(own):
            slot = queue_evictable(self.queues, self.slots + own, self.view.refs)
            if slot >= 0:
                return slot
        # The first entry is farthest above its quota. Others are asked only if all of its blocks are pinned.
        for i in range(1, heap_size(&self.heap) + 1):
            slot = queue_evictable(self.queues, self.slots + self.heap.entries[i].slot, self.view.refs)
            if slot >= 0:
                return slot
        return -1


cdef list parse_quotas(str text, int32_t capacity):
    """Blocks by tenant number from ``10,20,…``. Raises ConfigError for what is none, or too much."""
    if not text:
        return []
    try:
        quotas = [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"tenant-lru: quotas = {text!r} are not whole numbers of blocks with commas between") from None
    if min(quotas) < 0 or sum(quotas) > capacity:
        raise ConfigError(f"tenant-lru: quotas of {sum(quotas):,} blocks in all are more than the tier's {capacity:,}")
    return quotas
