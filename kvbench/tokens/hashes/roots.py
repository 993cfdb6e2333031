"""What vLLM puts before the first block (its NONE_HASH), by version and seed.

The seed is the text of PYTHONHASHSEED. Where it is not set, vLLM 0.29 and later hash a text of
their own for the SHA-256 functions; earlier versions, and all with XXH3, draw random bytes, which
no other process can know (vLLM 0.11 to 0.33, v1/core/kv_cache_utils.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.tokens.hashes.triples import parse_digest

if TYPE_CHECKING:
    from kvbench.tokens.hashes.triples import TripleHash

OWN_TEXT = "vllm-none-hash"
OWN_TEXT_SINCE = (0, 29)
XXHASH_SINCE = (0, 13)
NEWEST = "0.33"
"""The version of vLLM that is meant where none is named."""

Version = tuple[int, int]


def parse_version(text: str) -> Version:
    """Major and minor number of a version of vLLM: ``0.28`` or ``0.28.1``."""
    found = re.fullmatch(r"v?(\d+)\.(\d+)(\..*)?", text)
    if found is None:
        raise ConfigError(f"vllm = {text!r} is not a version of vLLM, such as {NEWEST}")
    return int(found[1]), int(found[2])


def check_function(name: str, version: Version) -> None:
    """Refuse a hash function that a version of vLLM has not."""
    if name.startswith("xxhash") and version < XXHASH_SINCE:
        raise ConfigError(f"vllm = {_text(version)} has no {name}; the first version with it is {_text(XXHASH_SINCE)}")


def vllm_root(
    name: str, hash_of: TripleHash, *, version: Version, seed: str | None = None, none_hash: str | None = None
) -> bytes:
    """The root, a digest of the function ``hash_of`` called ``name``.

    ``seed``       the text of PYTHONHASHSEED, if it is set.
    ``none_hash``  the root itself, in hexadecimal.

    Raises ConfigError where the root is random.
    """
    if none_hash is not None:
        if seed is not None:
            raise ConfigError(f"seed = {seed!r} has no effect where none_hash is given")
        return parse_digest(none_hash, len(hash_of("")))
    if seed is not None:
        return hash_of(seed)
    if name.startswith("xxhash") or version < OWN_TEXT_SINCE:
        raise ConfigError(
            f"vLLM {_text(version)} with {name} draws a random root in each process unless PYTHONHASHSEED is set, so "
            "nobody can reproduce its hashes; give seed (the text of PYTHONHASHSEED) or none_hash"
        )
    return hash_of(OWN_TEXT)


def _text(version: Version) -> str:
    return ".".join(map(str, version))
