"""What an eviction policy is: something that orders the slots of one tier.

The tier owns residency, capacity, pins and counting. It tells its policy, once for each run of
slots of a request, what was touched, inserted or removed, and asks it for victims. Slots are
small integers below the tier's capacity; a slot that was evicted will be used again for another
block.

``view.refs[slot]`` is 0 for a free slot, 1 for a resident block and more than 1 for a pinned
one. **A policy may give away only slots whose count is exactly 1.** The tier checks every victim,
so a policy that gets this wrong stops the replay with a message; it cannot corrupt the accounting.

Flags, set when the policy is made, change how the tier calls:

``one_by_one``    missing blocks are stored one at a time, in sweep order, and ``view.incoming`` is
                  the key that an eviction makes room for. For policies that remember evicted keys.
``insert_first``  (with one_by_one) a block is inserted before its victim is chosen, so that the
                  newcomer itself may go. Slots are then 0 … capacity, one more than blocks stay.
``drops``         (with one_by_one) the policy may give up blocks although the tier is not full;
                  it is asked with ``drop_slot`` after each call.
``never_evicts``  the policy never evicts: a full tier stores no more, and ``evict`` is not called.
``expires``       blocks go by themselves when their time is up: ``drop_slot`` is asked before each lookup.
"""

from libc.stdint cimport int32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kvbench.eviction.view cimport TierView
from kvbench.memory cimport Int32Memory, large_calloc

from kvbench.errors import PolicyError


class PolicyContext:
    """What a policy is told when it is made.

    ``capacity``      number of blocks its tier holds; slots are 0 … capacity-1.
    ``seed``          64-bit seed of the policy's own random stream; the same in every run with the
                      same seed, whatever else is drawn elsewhere.
    ``block_tokens``  tokens of a full block, or None where the trace does not say.
    """

    __slots__ = ("block_tokens", "capacity", "seed")

    def __init__(self, capacity: int, seed: int = 0, block_tokens: int | None = None) -> None:
        self.capacity = capacity
        self.seed = seed
        self.block_tokens = block_tokens


cdef class EvictionPolicy:
    """Base of all policies; compiled ones override the ``*_slots`` methods declared in policy.pxd.

    Python classes derive from :class:`PythonPolicy` instead.
    """

    def __cinit__(self, context, *args, **kwargs):
        self.capacity = context.capacity
        self.view = None
        self.piece_count = 0

    def __dealloc__(self):
        cdef int i
        for i in range(self.piece_count):
            free(self.pieces[i])

    cpdef bind(self, TierView view):
        """Tie the policy to its tier; a policy serves one tier only."""
        if self.view is not None:
            raise PolicyError(f"{type(self).__name__} already serves a tier; make one policy for each tier")
        self.view = view

    cdef void* allocate(self, size_t count, size_t size) except NULL:
        """``count`` zeroed entries of ``size`` bytes, freed with the policy.

        A policy keeps *all* that changes in memory from here, scalars in a struct too, and no
        pointers in it: then ``snapshot`` and ``restore`` need no code of its own.
        """
        cdef void* piece
        if self.piece_count == MAX_PIECES:
            raise MemoryError(f"{type(self).__name__}: more than {MAX_PIECES} pieces of memory")
        piece = large_calloc(max(count, 1), size)
        if piece == NULL:
            raise MemoryError(f"{type(self).__name__}: no memory for {count:,} entries")
        self.pieces[self.piece_count] = piece
        self.piece_bytes[self.piece_count] = max(count, 1) * size
        self.piece_count += 1
        return piece

    def snapshot(self):
        """The whole state of the policy; ``restore`` it into a policy made with the same context
        and parameters, and both go on alike."""
        cdef int i
        return [(<char*>self.pieces[i])[:self.piece_bytes[i]] for i in range(self.piece_count)]

    def restore(self, snapshot):
        """Take over the state that ``snapshot`` returned. Raises PolicyError if it is another's."""
        cdef int i
        cdef bytes piece
        if [len(piece) for piece in snapshot] != [self.piece_bytes[i] for i in range(self.piece_count)]:
            raise PolicyError(f"{type(self).__name__}: the snapshot is that of another policy or capacity")
        for i, piece in enumerate(snapshot):
            memcpy(self.pieces[i], <char*>piece, self.piece_bytes[i])
        if self.view is not None:
            self.view.stirs += 1  # what searches remember is of the other state

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        """``n`` resident slots were used, oldest use first."""
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        """``n`` slots were filled, in this order."""
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        """``n`` slots were emptied by somebody else than this policy; forget them."""
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        """Forget ``n`` evictable slots and write them to ``victims``, first victim first.

        Returns how many were found: fewer than ``n`` only if fewer are evictable.
        """
        return 0

    cdef int32_t drop_slot(self) except -2 nogil:
        """Forget one evictable slot that the policy wants to be rid of and return it; -1: none."""
        return -1


cdef class PythonPolicy(EvictionPolicy):
    """A policy written in Python. Override ``touch``, ``insert``, ``remove`` and ``evict``.

    The constructor takes the :class:`PolicyContext` and the declared parameters by keyword.
    Methods get the slots of a whole request as a read-only buffer of 32-bit integers: iterate
    it, or wrap it with ``numpy.asarray`` without a copy. The buffer's *contents* are good until
    the method returns; copy what is to be kept.

    While a method runs, ``keys``, ``refs``, ``request_index``, ``time_ns``, ``depth``, ``step``,
    ``session``, … tell of the blocks and the request at hand.
    """

    def __cinit__(self, context, *args, **kwargs):
        self.scratch = Int32Memory(256)

    def __init__(self, context):
        pass

    @property
    def refs(self):
        """Read-only view: ``refs[slot]`` is 0 if free, 1 if evictable, more if pinned."""
        return memoryview(self.bound().refs_memory)

    @property
    def keys(self):
        """Read-only view: ``keys[slot]`` is the key of the block in ``slot``."""
        return memoryview(self.bound().keys_memory)

    @property
    def request_index(self):
        """Number of the request being served, from 0."""
        return self.bound().request.index

    @property
    def time_ns(self):
        """Its arrival; -1 unless the spec names the column ``arrival_ns``."""
        return self.bound().request.time_ns

    @property
    def input_tokens(self):
        """Its prompt length; -1 unless the spec names the column ``input_tokens``."""
        return self.bound().request.input_tokens

    @property
    def turn(self):
        """Its position in the conversation; -1 unless the spec names the column ``turn``."""
        return self.bound().request.turn

    @property
    def priority(self):
        """Its priority; -1 unless the spec names the column ``priority``."""
        return self.bound().request.priority

    @property
    def session(self):
        """Number of its session, in first-seen order; -1 unless the spec names ``session_id``."""
        return self.bound().request.session

    @property
    def tenant(self):
        """Number of its tenant, in first-seen order; -1 unless the spec names ``tenant``."""
        return self.bound().request.tenant

    @property
    def type(self):
        """Number of its type, in first-seen order; -1 unless the spec names ``type``."""
        return self.bound().request.type

    @property
    def depth(self):
        """Position in its request of the first block of the run that is told."""
        return self.bound().depth

    @property
    def step(self):
        """From one block of the run to the next the position changes by this: 1 or -1."""
        return self.bound().step

    def evictable(self, int32_t slot):
        """True if ``slot`` holds a block that is not pinned."""
        if self.view is None or not 0 <= slot < self.view.refs_memory.size:
            return False
        return self.view.refs[slot] == 1

    def touch(self, slots):
        """The blocks in ``slots`` were used, in this order (the last one is the most recent)."""

    def insert(self, slots):
        """Blocks were stored in ``slots``, in this order."""
        raise NotImplementedError(f"{type(self).__name__} must define insert(slots)")

    def remove(self, slots):
        """The blocks in ``slots`` are gone for another reason than eviction; forget them."""
        raise NotImplementedError(f"{type(self).__name__} must define remove(slots)")

    def evict(self, n):
        """Choose ``n`` evictable slots, forget them, and return them, first victim first."""
        raise NotImplementedError(f"{type(self).__name__} must define evict(n)")

    def snapshot(self):
        """A deep copy of the instance's attributes; override both methods if that is not the state."""
        import copy

        return copy.deepcopy(vars(self))

    def restore(self, snapshot):
        """Take over the attributes that ``snapshot`` returned."""
        import copy

        vars(self).clear()
        vars(self).update(copy.deepcopy(snapshot))

    cdef TierView bound(self):
        if self.view is None:
            raise PolicyError(f"{type(self).__name__}: refs, keys and facts can be read once the policy serves a tier")
        return self.view

    cdef object slots_view(self, const int32_t* slots, int32_t n):
        # A view may outlive the call in the hands of a careless policy. So the slots are copied
        # into memory that lives as long as any view of it; a larger request gets new memory.
        if self.scratch.size < n:
            self.scratch = Int32Memory(max(n, 2 * self.scratch.size))
        memcpy(self.scratch.data, slots, n * sizeof(int32_t))
        return memoryview(self.scratch)[:n]

    cdef int touch_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        with gil:
            self.touch(self.slots_view(slots, n))
        return 0

    cdef int insert_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        with gil:
            self.insert(self.slots_view(slots, n))
        return 0

    cdef int remove_slots(self, const int32_t* slots, int32_t n) except -1 nogil:
        with gil:
            self.remove(self.slots_view(slots, n))
        return 0

    cdef int32_t evict_slots(self, int32_t n, int32_t* victims) except -1 nogil:
        cdef int32_t found = 0
        with gil:
            for slot in self.evict(n):
                if found == n:
                    raise PolicyError(f"{type(self).__name__}.evict({n}) returned more than {n} slots")
                try:
                    victims[found] = slot
                except (OverflowError, TypeError):
                    raise PolicyError(
                        f"{type(self).__name__}.evict({n}) returned {slot!r}, which is no slot"
                    ) from None
                found += 1
        return found
