"""Digests of triples (parent, tokens, extra), written as bytes by pickle or CBOR.

This is how vLLM hashes a block, and LMCache with vLLM's functions. The bytes are pickle's at
protocol 5, or canonical CBOR (RFC 8949 §4.2.1); they go through SHA-256 or XXH3-128.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from kvbench.errors import ArgumentError, ConfigError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    TripleHash = Callable[[object], bytes]

PICKLE_PROTOCOL = 5
"""The highest one of Python 3.8 and later, which is what is asked for."""

TRIPLE_HASHES = ("sha256", "sha256-cbor", "xxhash", "xxhash-cbor")


def triple_hash(name: str) -> TripleHash:
    """The function of one of :data:`TRIPLE_HASHES`: a value in, its digest out (SHA-256: 32 bytes,
    XXH3-128: 16)."""
    if name not in TRIPLE_HASHES:
        raise ConfigError(f"{name!r} is not one of {', '.join(TRIPLE_HASHES)}")
    write = _cbor_writer() if name.endswith("-cbor") else partial(pickle.dumps, protocol=PICKLE_PROTOCOL)
    digest = _xxh3_128() if name.startswith("xxhash") else sha256_digest
    return lambda value: digest(write(value))


def sha256_digest(data: bytes) -> bytes:
    """32-byte SHA-256 digest."""
    return hashlib.sha256(data).digest()


def interned(value: Any) -> Any:
    """``value`` with its lists as tuples, and equal strings as one object.

    Pickle writes an object that it has met before as a reference to it, so the bytes depend on
    which equal strings are the same object. Interning settles that.
    """
    if isinstance(value, list | tuple):
        return tuple(map(interned, value))
    return sys.intern(value) if type(value) is str else value


def fold(digest: bytes) -> int:
    """The first 8 bytes, big-endian: what LMCache keeps of a digest."""
    return int.from_bytes(digest[:8], "big")


def parse_digest(text: str, size: int) -> bytes:
    """A digest of ``size`` bytes from its hexadecimal text."""
    try:
        found = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        found = b""
    if len(found) != size:
        raise ConfigError(f"none_hash = {text!r} is not the hexadecimal text of {size} bytes")
    return found


def check_digest(digest: object, size: int) -> bytes:
    """``digest``; raises ArgumentError if it is not of ``size`` bytes."""
    if not isinstance(digest, bytes) or len(digest) != size:
        raise ArgumentError(f"digest {shorten(digest)} is not of {size} bytes")
    return digest


def _cbor_writer() -> Callable[[object], bytes]:
    import cbor2

    return partial(cbor2.dumps, canonical=True)


def _xxh3_128() -> Callable[[bytes], bytes]:
    import xxhash

    return xxhash.xxh3_128_digest
