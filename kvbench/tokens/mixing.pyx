"""The per-id loops of the ``ids`` token database."""

from libc.stdint cimport int64_t, uint64_t

from kvbench.hashing cimport mix64

cdef enum:
    PARENT = 0x9e3779b9  # sets a block's own mixing apart from that of its parent


def mix_ids(const uint64_t[::1] ids, const int64_t[::1] offsets, const uint64_t[::1] roots, uint64_t[::1] keys):
    """Write ``keys[j] = mix64(ids[j] ^ roots[i])`` for the ids of each row i; a root of 0 leaves
    its row as it is.

    For one root this is a bijection, so different ids never merge.
    """
    cdef int64_t i, j
    check(ids, offsets, roots, keys)
    for i in range(roots.shape[0]):
        for j in range(offsets[i], offsets[i + 1]):
            keys[j] = mix64(ids[j] ^ roots[i]) if roots[i] else ids[j]


def chain_ids(const uint64_t[::1] ids, const int64_t[::1] offsets, const uint64_t[::1] roots, uint64_t[::1] keys):
    """Write keys that stand for an id *and all before it in its row*.

    ``keys[j] = mix64(keys[j-1] + mix64(ids[j] ^ PARENT))``, starting from the row's root. Under
    one parent this is a bijection of the id; over different parents, collisions are those of
    64-bit hashes. It is not cryptographic: ids come from a trace, not from an adversary.
    """
    cdef int64_t i, j
    cdef uint64_t key
    check(ids, offsets, roots, keys)
    for i in range(roots.shape[0]):
        key = mix64(roots[i] ^ PARENT)
        for j in range(offsets[i], offsets[i + 1]):
            key = mix64(key + mix64(ids[j] ^ PARENT))
            keys[j] = key


cdef check(const uint64_t[::1] ids, const int64_t[::1] offsets, const uint64_t[::1] roots, uint64_t[::1] keys):
    cdef int64_t i
    if offsets.shape[0] != roots.shape[0] + 1 or keys.shape[0] != ids.shape[0]:
        raise ValueError("ids, offsets, roots and keys do not belong together")
    for i in range(roots.shape[0]):
        if not 0 <= offsets[i] <= offsets[i + 1] <= ids.shape[0]:
            raise ValueError("offsets point outside the ids")
