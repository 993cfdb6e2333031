"""vLLM: ``digest = H((parent, tokens, extra keys or None))``, full blocks only, digests in full.

Extra keys are the adapter, images, the cache salt (first block) and prompt embeddings, in this
order; how they are written depends on the version (vLLM 0.11 to 0.33, v1/core/kv_cache_utils.py). With a lookahead
the third element is (extra keys or None, next token, …), and a block is hashed only when these
exist. The key is the low 64 bits of the digest, as in vLLM's events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kvbench.errors import ConfigError
from kvbench.tokens.hashes.base import ChainHash, Digest
from kvbench.tokens.hashes.roots import NEWEST, check_function, parse_version, vllm_root
from kvbench.tokens.hashes.triples import check_digest, interned, triple_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.tokens.arrays import Tokens
    from kvbench.tokens.hashes.base import Extra
    from kvbench.tokens.hashes.triples import TripleHash

OFFSETS_SINCE = (0, 19)
TAGS_SINCE = (0, 31)


class Image(NamedTuple):
    """An image of a prompt: what identifies it, its first token and the number of its tokens."""

    identifier: str
    offset: int
    length: int


class VllmHash(ChainHash):
    """``hash_of`` is the function, ``root`` its NONE_HASH, ``version`` that of vLLM."""

    takes_extras: ClassVar[bool] = True

    def __init__(self, hash_of: TripleHash, root: bytes, *, version: tuple[int, int], lookahead: int = 0) -> None:
        self._hash_of = hash_of
        self._root = root
        self._version = version
        self.lookahead = lookahead

    @property
    def root(self) -> bytes:
        return self._root

    @property
    def style(self) -> str:
        """How extra keys are written: ``<=0.18``, ``0.19-0.30`` or ``>=0.31``."""
        if self._version < OFFSETS_SINCE:
            return "<=0.18"
        return "0.19-0.30" if self._version < TAGS_SINCE else ">=0.31"

    def chain(self, parent: Digest | None, tokens: Tokens, extra: Extra = None, ahead: Tokens | None = None) -> bytes:
        self.check_extras([extra], 1)
        third: Any = interned(extra) or None
        if self.lookahead:
            third = (third, *([] if ahead is None else ahead.tolist()))
        return self._hash_of((check_digest(parent, len(self._root)), tuple(tokens.tolist()), third))

    def key(self, digest: Digest) -> int:
        return int.from_bytes(check_digest(digest, len(self._root))[-8:], "big")

    def extra_keys(
        self,
        length: int,
        block_tokens: int,
        *,
        adapter: tuple[str, str] | None = None,
        images: Sequence[Image] = (),
        salt: str = "",
        embeds: Sequence[object] | None = None,
    ) -> list[Extra]:
        """The extra keys of each block of a prompt of ``length`` tokens, None where a block has none.

        ``adapter``  name and path of a LoRA adapter.
        ``images``   in the order of their offsets. Each is in all blocks that it overlaps, with its
                     offset from the block's start, which is negative where it began before.
        ``salt``     the cache salt.
        ``embeds``   a digest of the prompt embeddings for each block, None where it has none.
        """
        found: list[Extra] = []
        for number, start in enumerate(range(0, length, block_tokens)):
            keys: list[object] = [] if adapter is None else [self._tagged("lora", *adapter[: self._adapter_fields])]
            end = start + block_tokens + self.lookahead
            keys += [self._image(each, start) for each in images if each[1] < end and each[1] + each[2] > start]
            if salt and not start:
                keys.append(self._tagged("cache_salt", salt))
            if embeds is not None and embeds[number] is not None:
                keys.append(self._tagged("prompt_embeds", embeds[number]))
            found.append(tuple(keys) or None)
        return found

    @property
    def _adapter_fields(self) -> int:
        return 2 if self._version >= TAGS_SINCE else 1

    def _tagged(self, tag: str, *values: object) -> object:
        if self._version >= TAGS_SINCE:
            return (tag, *values)
        return values if len(values) > 1 else values[0]

    def _image(self, image: tuple[str, int, int], start: int) -> object:
        if self._version < OFFSETS_SINCE:
            return image[0]
        return self._tagged("mm", image[0], image[1] - start)


class LmcacheServerHash(VllmHash):
    """LMCache's multi-process server with vLLM's function and root. It hashes text alone, and so as
    vLLM does where blocks have no extra keys."""

    takes_extras: ClassVar[bool] = False


def make_vllm(
    function: str, *, vllm: str = NEWEST, lookahead: int = 0, seed: str | None = None, none_hash: str | None = None
) -> VllmHash:
    """vLLM's algorithm with the hash function of this name."""
    version = parse_version(vllm)
    check_function(function, version)
    hash_of = triple_hash(function)
    root = vllm_root(function, hash_of, version=version, seed=seed, none_hash=none_hash)
    return VllmHash(hash_of, root, version=version, lookahead=lookahead)


def make_vllm_sha256(**params: Any) -> VllmHash:
    """SHA-256 of pickled blocks."""
    return make_vllm("sha256", **params)


def make_vllm_sha256_cbor(**params: Any) -> VllmHash:
    """SHA-256 of blocks as CBOR."""
    return make_vllm("sha256-cbor", **params)


def make_vllm_xxhash(**params: Any) -> VllmHash:
    """XXH3-128 of pickled blocks."""
    return make_vllm("xxhash", **params)


def make_vllm_xxhash_cbor(**params: Any) -> VllmHash:
    """XXH3-128 of blocks as CBOR."""
    return make_vllm("xxhash-cbor", **params)


def make_lmcache_mp_sha256_cbor(
    *, vllm: str | None = None, seed: str | None = None, none_hash: str | None = None
) -> LmcacheServerHash:
    """LMCache's multi-process server with SHA-256 of blocks as CBOR."""
    if vllm is not None and (seed is not None or none_hash is not None):
        raise ConfigError(f"vllm = {vllm} has no effect where seed or none_hash is given")
    version = parse_version(NEWEST if vllm is None else vllm)
    hash_of = triple_hash("sha256-cbor")
    root = vllm_root("sha256-cbor", hash_of, version=version, seed=seed, none_hash=none_hash)
    return LmcacheServerHash(hash_of, root, version=version)
