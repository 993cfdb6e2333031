"""Digests of plain bytes: the parent's digest, then the tokens as 32-bit integers.

kvbench (semantics §2.2): ``digest = H(parent ‖ tokens)``, tokens little-endian, the root that of
the empty namespace; the key is the first 8 bytes of the digest, little-endian.

LMCache's multi-process server: the same with BLAKE3 and big-endian tokens; its root is the hash
of an empty block, written as a 64-bit and a 32-bit zero. Its keys are the first 8 bytes,
big-endian, as LMCache folds digests elsewhere.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from blake3 import blake3

from kvbench.tokens.hashes.base import ChainHash, Digest
from kvbench.tokens.hashes.loops import chain_made, chain_reset
from kvbench.tokens.hashes.triples import check_digest
from kvbench.tokens.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from kvbench.tokens.arrays import Tokens
    from kvbench.tokens.hashes.base import Extra

DIGEST_BYTES = 32


class PlainHash(ChainHash):
    """``H(parent ‖ tokens)`` for 32-byte digests.

    ``make``   the hash function: ``make(bytes)`` has ``digest()``.
    ``reset``  what it makes can be reset and used again, which saves making one for each block.
    ``order``  byte order of tokens, and of the key in the digest's first 8 bytes; ``little`` is kvbench's
               own layout, whose root may be that of a namespace.
    """

    def __init__(
        self, make: Callable[..., Any], root: bytes, *, reset: bool = False, order: Literal["little", "big"] = "little"
    ) -> None:
        self.takes_root = order == "little"
        self._make = make
        self._root = root
        self._hasher = make() if reset else None
        self._order: Literal["little", "big"] = order
        self._token_type = "<u4" if order == "little" else ">u4"
        self._key_type = "<u8" if order == "little" else ">u8"

    @property
    def root(self) -> bytes:
        return self._root

    def chain(self, parent: Digest | None, tokens: Tokens, extra: Extra = None, ahead: Tokens | None = None) -> bytes:
        self.check_extras([extra], 1)
        digest: bytes = self._make(
            check_digest(parent, DIGEST_BYTES) + tokens.astype(self._token_type).tobytes()
        ).digest()
        return digest

    def chain_blocks(
        self, parent: Digest | None, tokens: Tokens, block_tokens: int, extras: Sequence[Extra] | None = None
    ) -> list[Digest]:
        self.check_extras(extras, -(-len(tokens) // block_tokens))
        data = tokens.astype(self._token_type, copy=False).view(np.uint8)
        first, step = check_digest(parent, DIGEST_BYTES), 4 * block_tokens
        if self._hasher is not None:
            return list(chain_reset(self._hasher, first, data, step))
        return list(chain_made(self._make, first, data, step))

    def key(self, digest: Digest) -> int:
        return int.from_bytes(check_digest(digest, DIGEST_BYTES)[:8], self._order)

    def keys(self, digests: Sequence[Digest]) -> npt.NDArray[np.uint64]:
        if set(map(type, digests)) <= {bytes} and set(map(len, digests)) <= {DIGEST_BYTES}:  # type: ignore[arg-type]
            return np.frombuffer(b"".join(digests), self._key_type)[:: DIGEST_BYTES // 8].astype(np.uint64)  # type: ignore[arg-type]
        return super().keys(digests)


def make_blake3() -> PlainHash:
    """kvbench's own layout with BLAKE3."""
    return PlainHash(blake3, Namespace().root(), reset=True)


def make_sha256() -> PlainHash:
    """kvbench's own layout with SHA-256."""
    return PlainHash(hashlib.sha256, Namespace().root())


def make_lmcache_mp() -> PlainHash:
    """LMCache's multi-process server with its default hash function."""
    return PlainHash(blake3, blake3(bytes(12)).digest(), reset=True, order="big")
