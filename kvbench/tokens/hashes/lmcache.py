"""LMCache in the engine: ``digest = fold(H((parent, tokens, ())))``, where fold keeps 64 bits.

Digests are folded before they are chained, so a chain is one of 64-bit integers; the third
element is always the empty tuple. A folded digest is unsigned; the built-in hash is not folded and
may be negative. With 64 bits, among 4 billion blocks two are as likely as not to share a hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from kvbench.errors import ArgumentError, ConfigError
from kvbench.tokens.hashes.base import ChainHash, Digest
from kvbench.tokens.hashes.loops import chain_tuple, chain_tuples
from kvbench.tokens.hashes.roots import NEWEST, check_function, parse_version, vllm_root
from kvbench.tokens.hashes.triples import fold, triple_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvbench.tokens.arrays import Tokens
    from kvbench.tokens.hashes.base import Extra
    from kvbench.tokens.hashes.triples import TripleHash


class IntHash(ChainHash):
    """What digests of 64 bits have in common: a key is the digest modulo 2⁶⁴."""

    form: ClassVar[Literal["bytes", "int"]] = "int"
    lowest: ClassVar[int] = 0
    highest: ClassVar[int] = 2**64 - 1

    def key(self, digest: Digest) -> int:
        return self.check(digest) % 2**64

    def keys(self, digests: Sequence[Digest]) -> npt.NDArray[np.uint64]:
        return np.array(digests, np.uint64 if self.lowest == 0 else np.int64).astype(np.uint64)

    def check(self, digest: Digest | None) -> int:
        """``digest``; raises ArgumentError if this algorithm has no such digest."""
        if not isinstance(digest, int) or not self.lowest <= digest <= self.highest:
            raise ArgumentError(f"digest {digest!r} is not an integer from {self.lowest} to {self.highest}")
        return digest


class LmcacheHash(IntHash):
    """LMCache with one of vLLM's functions, ``hash_of``; ``root`` is the folded NONE_HASH."""

    def __init__(self, hash_of: TripleHash, root: int) -> None:
        self._hash_of = hash_of
        self._root = root

    @property
    def root(self) -> int:
        return self._root

    def chain(self, parent: Digest | None, tokens: Tokens, extra: Extra = None, ahead: Tokens | None = None) -> int:
        self.check_extras([extra], 1)
        return fold(self._hash_of((self.check(parent), tuple(tokens.tolist()), ())))


class LmcacheBuiltinHash(IntHash):
    """LMCache with Python's own ``hash``, computed here so that it is the same in every process."""

    lowest: ClassVar[int] = -(2**63)
    highest: ClassVar[int] = 2**63 - 1

    def __init__(self, root: int) -> None:
        self._root = self.check(root)

    @property
    def root(self) -> int:
        return self._root

    def chain(self, parent: Digest | None, tokens: Tokens, extra: Extra = None, ahead: Tokens | None = None) -> int:
        self.check_extras([extra], 1)
        return chain_tuple(self.check(parent), tokens)

    def chain_blocks(
        self, parent: Digest | None, tokens: Tokens, block_tokens: int, extras: Sequence[Extra] | None = None
    ) -> list[Digest]:
        self.check_extras(extras, -(-len(tokens) // block_tokens))
        return list(chain_tuples(self.check(parent), tokens, block_tokens))


def make_lmcache(
    function: str, *, vllm: str | None = None, seed: str | None = None, none_hash: str | None = None
) -> LmcacheHash:
    """LMCache's algorithm with vLLM's hash function of this name.

    ``vllm``  the version of vLLM, which decides on the root where nothing else does.
    """
    if vllm is not None and (seed is not None or none_hash is not None):
        raise ConfigError(f"vllm = {vllm} has no effect where seed or none_hash is given")
    hash_of = triple_hash(function)
    if none_hash is not None and seed is None:
        return LmcacheHash(hash_of, _parse_int(none_hash, LmcacheHash))
    version = parse_version(NEWEST if vllm is None else vllm)
    check_function(function, version)
    return LmcacheHash(hash_of, fold(vllm_root(function, hash_of, version=version, seed=seed, none_hash=none_hash)))


def make_lmcache_builtin(*, none_hash: str = "0") -> LmcacheBuiltinHash:
    """LMCache's default algorithm. Without vLLM its root is 0; with vLLM it is Python's hash of a
    string, which differs from process to process and must be given."""
    return LmcacheBuiltinHash(_parse_int(none_hash, LmcacheBuiltinHash))


def make_lmcache_sha256(**params: Any) -> LmcacheHash:
    """SHA-256 of pickled blocks, folded."""
    return make_lmcache("sha256", **params)


def make_lmcache_sha256_cbor(**params: Any) -> LmcacheHash:
    """SHA-256 of blocks as CBOR, folded."""
    return make_lmcache("sha256-cbor", **params)


def make_lmcache_xxhash(**params: Any) -> LmcacheHash:
    """XXH3-128 of pickled blocks, folded."""
    return make_lmcache("xxhash", **params)


def make_lmcache_xxhash_cbor(**params: Any) -> LmcacheHash:
    """XXH3-128 of blocks as CBOR, folded."""
    return make_lmcache("xxhash-cbor", **params)


def _parse_int(text: str, kind: type[IntHash]) -> int:
    """A root from decimal text, or hexadecimal after ``0x``."""
    try:
        found = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        found = None
    if found is None or not kind.lowest <= found <= kind.highest:
        raise ConfigError(f"none_hash = {text!r} is not an integer from {kind.lowest} to {kind.highest}")
    return found
