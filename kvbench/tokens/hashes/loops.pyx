"""The per-block loops of hash algorithms."""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy


def chain_reset(hasher, bytes parent, const unsigned char[::1] data, Py_ssize_t step):
    """The digests of ``parent ‖ block``, block after block of ``step`` bytes (the last may be
    shorter), by a hasher that can be ``reset``.

    One hasher and one buffer serve all blocks: making and freeing a Python object for each takes
    a sixth of the time of hashing 256 tokens.
    """
    cdef list digests = []
    cdef Py_ssize_t at, size = len(parent), rest = data.shape[0]
    cdef bytearray block = bytearray(size + step)
    reset, update, digest = hasher.reset, hasher.update, hasher.digest
    for at in range(0, data.shape[0], step):
        fill(block, parent, size, &data[at], min(step, rest))
        reset()
        update(block if rest >= step else block[:size + rest])
        parent = digest()
        digests.append(parent)
        rest -= step
    return digests


def chain_made(make, bytes parent, const unsigned char[::1] data, Py_ssize_t step):
    """As :func:`chain_reset`, by a hasher that ``make(bytes)`` makes anew for each block."""
    cdef list digests = []
    cdef Py_ssize_t at, size = len(parent), rest = data.shape[0]
    cdef bytearray block = bytearray(size + step)
    for at in range(0, data.shape[0], step):
        fill(block, parent, size, &data[at], min(step, rest))
        parent = make(block if rest >= step else block[:size + rest]).digest()
        digests.append(parent)
        rest -= step
    return digests


cdef int fill(bytearray block, bytes parent, Py_ssize_t size, const unsigned char* data, Py_ssize_t count) except -1:
    if len(parent) != size:
        raise ValueError("digests of different lengths")
    memcpy(PyByteArray_AS_STRING(block), PyBytes_AS_STRING(parent), size)
    memcpy(PyByteArray_AS_STRING(block) + size, data, count)
    return 0


# CPython's hash of a tuple (Objects/tupleobject.c since 3.8) is that of xxHash with 64-bit lanes;
# an int hashes to itself modulo a Mersenne prime. Both are documented to be the same in every
# process, and written out here so that they are the same under every interpreter, too.
cdef enum:
    MERSENNE_BITS = 61

cdef uint64_t PRIME_1 = 11400714785074694791ULL
cdef uint64_t PRIME_2 = 14029467366897019727ULL
cdef uint64_t PRIME_5 = 2870177450012600261ULL
cdef uint64_t LENGTH_MASK = PRIME_5 ^ 3527539ULL
cdef uint64_t MODULUS = (1ULL << MERSENNE_BITS) - 1


cdef inline uint64_t lane(uint64_t state, uint64_t value) noexcept:
    state += value * PRIME_2
    state = (state << 31) | (state >> 33)
    return state * PRIME_1


cdef inline uint64_t finish(uint64_t state, uint64_t length) noexcept:
    state += length ^ LENGTH_MASK
    # -1 is how C code says that hashing failed.
    return 1546275796 if state == <uint64_t>-1 else state


cdef inline uint64_t int_hash(int64_t value) noexcept:
    cdef uint64_t size = -<uint64_t>value if value < 0 else <uint64_t>value
    size %= MODULUS
    if value >= 0:
        return size
    return <uint64_t>-2 if size == 1 else -size


def chain_tuple(int64_t parent, const uint32_t[::1] tokens):
    """``hash((parent, tuple(tokens), ()))`` as CPython computes it: a signed 64-bit integer."""
    return tuple_hash(parent, tokens, 0, tokens.shape[0])


def chain_tuples(int64_t parent, const uint32_t[::1] tokens, Py_ssize_t block_tokens):
    """:func:`chain_tuple` of block after block of ``block_tokens`` tokens (the last may be
    shorter), each hash the next one's parent."""
    cdef list digests = []
    cdef Py_ssize_t at
    for at in range(0, tokens.shape[0], block_tokens):
        parent = tuple_hash(parent, tokens, at, min(at + block_tokens, tokens.shape[0]))
        digests.append(parent)
    return digests


cdef int64_t tuple_hash(int64_t parent, const uint32_t[::1] tokens, Py_ssize_t start, Py_ssize_t end) noexcept:
    cdef Py_ssize_t i
    cdef uint64_t inner = PRIME_5
    for i in range(start, end):
        inner = lane(inner, tokens[i])
    inner = finish(inner, end - start)
    return <int64_t>finish(lane(lane(lane(PRIME_5, int_hash(parent)), inner), finish(PRIME_5, 0)), 3)
