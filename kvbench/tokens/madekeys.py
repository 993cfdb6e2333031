"""The keys that one setup gives to a prompt, and what else of the setup is part of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError
from kvbench.specs import HashAlgorithmSpec
from kvbench.tokens.cachekey import CacheKey
from kvbench.tokens.hashes.base import ChainHash, Digest, build_hash
from kvbench.tokens.hashes.triples import fold
from kvbench.tokens.hashes.vllm import Image, VllmHash
from kvbench.tokens.keysetup import IRREPRODUCIBLE, KeySetup
from kvbench.tokens.lmcachekey import LmcacheKey, ObjectKey, lmcache_dtype, pack_kv_rank

if TYPE_CHECKING:
    from collections.abc import Set

    from kvbench.plugins import Registry
    from kvbench.tokens.arrays import Tokens
    from kvbench.tokens.hashes.base import Extra

SYSTEMS = ("lmcache-mp", "lmcache", "vllm", "dynamo")
"""Systems by the beginnings of their algorithms' names; whatever else takes a namespace is kvbench's."""

KEEPS_TAILS = ("kvbench", "lmcache", "other")
"""Systems that can key a partial last block."""

PART_OF_KEYS = {
    "kvbench": ("model", "dtype", "world", "rank", "layout", "tags", "adapter", "adapter_path", "salt"),
    "lmcache": ("model", "dtype", "world", "rank", "save_only_first_rank", "tags"),
    "lmcache-mp": ("model", "world", "rank", "salt"),
    "vllm": ("adapter", "adapter_path", "salt", "images"),
    "dynamo": ("adapter",),
    "other": (),
}
"""What a system's keys depend on beside the tokens: in the hash, or beside it."""

PYTHON_ROOT = "with vLLM the root of LMCache's builtin hash is Python's hash of a text"


@dataclass(frozen=True, slots=True)
class Unstable:
    """Keys are others in each process: because of setting ``field``, and why."""

    field: str
    why: str


@dataclass(frozen=True, slots=True)
class MadeKeys:
    """What a setup makes of a prompt.

    ``system``    whose keys these are: ``kvbench``, ``lmcache``, ``lmcache-mp``, ``vllm``, ``dynamo``, ``other``.
    ``layout``    the bytes that are hashed, in a few words.
    ``root``      what stands before the first block (NONE_HASH), as text.
    ``spans``     first token and end of each block.
    ``hashes``    of the blocks, as far as they are compared.
    ``identity``  what is part of a key beside the hash, as the system writes it.
    ``texts``     the keys as the system writes them; None where the setup does not say enough.
    ``unstable``  set if no other process has these keys; the hashes then are those of another root.
    """

    setup: KeySetup
    system: str
    layout: str
    root: str
    spans: tuple[tuple[int, int], ...]
    hashes: tuple[Digest, ...]
    identity: dict[str, Any]
    texts: tuple[str | None, ...]
    unstable: Unstable | None = None

    @property
    def blocks(self) -> list[tuple[tuple[int, int], Digest]]:
        """Span and hash of each block."""
        return list(zip(self.spans, self.hashes, strict=True))

    def equal_keys(self, other: MadeKeys) -> int:
        """How many leading keys of a prompt the two have in common.

        Between systems only what both write into their keys is compared.
        """
        if self.unstable or other.unstable or not self.agrees(other, self.identity.keys() & other.identity.keys()):
            return 0
        count = 0
        for mine, theirs in zip(self.blocks, other.blocks, strict=False):
            if mine != theirs:
                break
            count += 1
        return count

    def equals(self, other: MadeKeys) -> bool:
        """Whether all keys are the same."""
        if self.unstable or other.unstable:
            return False
        return self.blocks == other.blocks and self.agrees(other, self.identity.keys() & other.identity.keys())

    def same_effect(self, other: MadeKeys, compared: Set[str]) -> bool:
        """Whether nothing tells the two apart, of their identities the ``compared`` names; that the
        root is random on both sides does not."""
        return self.unstable == other.unstable and self.blocks == other.blocks and self.agrees(other, compared)

    def agrees(self, other: MadeKeys, compared: Set[str]) -> bool:
        """Whether the ``compared`` names of both identities are the same; one that a system does not have is None."""
        return all(self.identity.get(name) == other.identity.get(name) for name in compared)


def make_keys(setup: KeySetup, tokens: Tokens, registry: Registry) -> MadeKeys:
    """The keys of a prompt. Raises ConfigError for a setup that its system does not have."""
    if setup.algorithm in IRREPRODUCIBLE:
        system = system_of(setup.algorithm, None)
        why = Unstable("algorithm", IRREPRODUCIBLE[setup.algorithm])
        return MadeKeys(setup, system, "Python's hash of (parent, tokens, None)", "–", (), (), {}, (), why)
    spec = registry.get(HashAlgorithmSpec, setup.algorithm)
    hashing, unstable = _hashing(setup, spec)
    system = system_of(setup.algorithm, hashing)
    count = hashing.hashable(len(tokens), setup.chunk)
    length = min(len(tokens), count * setup.chunk + hashing.lookahead)
    if setup.tails == "keep" and system in KEEPS_TAILS:
        length, count = len(tokens), -(-len(tokens) // setup.chunk)
    extras = None
    if isinstance(hashing, VllmHash) and system == "vllm":
        adapter = (setup.adapter, setup.adapter_path) if setup.adapter else None
        images = parse_images(setup.images)
        extras = hashing.extra_keys(length, setup.chunk, adapter=adapter, images=images, salt=setup.salt)
    root = hashing.root
    if system == "kvbench":
        root = _cache_key(setup, 0).namespace().root()
    digests = _chain(hashing, root, tokens[:length], setup.chunk, extras)[:count]
    spans = tuple((at * setup.chunk, min(len(tokens), (at + 1) * setup.chunk)) for at in range(count))
    return MadeKeys(
        setup,
        system,
        spec.layout,
        "none" if root is None else hash_digits(root),
        spans,
        tuple(_folded(digest, setup.fold) for digest in digests),
        _identity(setup, system),
        tuple(None if unstable else _text(setup, system, digest) for digest in digests),
        unstable,
    )


def system_of(algorithm: str, hashing: ChainHash | None) -> str:
    """Whose keys an algorithm makes."""
    for system in SYSTEMS:
        if algorithm == system or algorithm.startswith(f"{system}-"):
            return system
    return "kvbench" if getattr(hashing, "takes_root", False) else "other"


def parse_images(text: str) -> list[Image]:
    """The images of ``IDENTIFIER:FIRST:COUNT …``, by their first tokens. Raises ConfigError for anything else."""
    found = []
    for word in text.split():
        identifier, _, place = word.partition(":")
        first, _, count = place.partition(":")
        if not (identifier and first.isdecimal() and count.isdecimal() and int(count)):
            raise ConfigError(f"images = {text!r}: {word!r} is not IDENTIFIER:FIRST:COUNT, such as img-1:16:5")
        found.append(Image(identifier, int(first), int(count)))
    return sorted(found, key=lambda image: image.offset)


def hash_digits(digest: Digest) -> str:
    """A digest in hex; a number of 64 bits has 16 digits, and a sign if it is negative."""
    return digest.hex() if isinstance(digest, bytes) else f"{digest:016x}"


def _hashing(setup: KeySetup, spec: HashAlgorithmSpec) -> tuple[ChainHash, Unstable | None]:
    """The algorithm; with a root that is nobody's, and why, where the setup leaves it to chance."""
    own = {param.name: param for param in spec.params}
    params = {name: value for name, value in setup.params.items() if name in own}
    if "adapter" in own:
        params["adapter"] = setup.adapter
    # What a root overrules has no effect, which is for the comparison to say.
    optional = {name for name, param in own.items() if param.optional}
    for name in ("none_hash", "seed"):
        if name in params:
            params = {key: value for key, value in params.items() if key == name or key not in optional}
            break
    if spec.name == "lmcache-builtin" and "none_hash" not in params:
        return build_hash(spec, {"none_hash": "0"}), _builtin_root(setup)
    try:
        return build_hash(spec, spec.parse_params(params)), None
    except ConfigError as error:
        if "seed" not in own or params.keys() & {"seed", "none_hash"}:
            raise
        # With a seed it can be made, so all that is wrong is that there is none: the root is random.
        seeded = {"seed": "", **{name: value for name, value in params.items() if name not in optional}}
        return build_hash(spec, spec.parse_params(seeded)), Unstable("seed", str(error))


def _builtin_root(setup: KeySetup) -> Unstable | None:
    """Whether the root of LMCache's builtin hash is known: it is 0 without vLLM."""
    if "seed" in setup.params:
        raise ConfigError(
            f"seed = {setup.params['seed']!r}: {PYTHON_ROOT}, which differs between versions of Python; read NONE_HASH "
            "in the process and give none_hash"
        )
    if "vllm" not in setup.params:
        return None
    return Unstable(
        "none_hash",
        f"{PYTHON_ROOT}, which is another one in each process unless PYTHONHASHSEED is set; set it, read NONE_HASH in "
        "the process and give none_hash, or name another algorithm",
    )


def _chain(
    hashing: ChainHash, root: Digest | None, tokens: Tokens, chunk: int, extras: list[Extra] | None
) -> list[Digest]:
    blocks = -(-len(tokens) // chunk)
    return hashing.chain_blocks(root, tokens, chunk, None if extras is None else extras[:blocks]) if blocks else []


def _folded(digest: Digest, how: str) -> Digest:
    if isinstance(digest, int) or how == "none":
        return digest
    return fold(digest) if how == "first" else int.from_bytes(digest[-8:], "big")


def _identity(setup: KeySetup, system: str) -> dict[str, Any]:
    """What a system's key has beside the hash. kvbench, vLLM and Dynamo have all of it in the hash."""
    if system == "lmcache":
        world = 1 if setup.save_only_first_rank else setup.world
        dtype = lmcache_dtype(setup.dtype) if setup.dtype else ""
        return {"model": setup.model, "world": world, "rank": setup.rank, "dtype": dtype, "tags": setup.tags}
    if system == "lmcache-mp":
        # The server refuses a name whatever its keys are compared with, and however much of them.
        key = _object_key(setup, b"")
        return {"model": key.model, "world": setup.world, "rank": setup.rank, "salt": key.salt}
    return {}


def _text(setup: KeySetup, system: str, digest: Digest) -> str | None:
    if system == "kvbench":
        return _cache_key(setup, digest).to_text()
    if system == "lmcache" and setup.model and setup.dtype:
        configs = tuple((f"lmcache.tag.{name}", value) for name, value in setup.tags)
        key = LmcacheKey(setup.model, setup.world, setup.rank, digest, setup.dtype, configs)
        return (key.stored_once() if setup.save_only_first_rank else key).to_text()
    if system == "lmcache-mp" and setup.model and isinstance(digest, bytes):
        return _object_key(setup, digest).file_name()
    return None


def _object_key(setup: KeySetup, digest: bytes) -> ObjectKey:
    """The key of LMCache's MP server. Raises ConfigError for a model, salt, world or rank that it refuses."""
    rank = pack_kv_rank(setup.world, setup.rank, setup.world, setup.rank)
    return ObjectKey(digest, setup.model, rank, salt=setup.salt)


def _cache_key(setup: KeySetup, digest: Digest) -> CacheKey:
    return CacheKey(
        digest,
        model=setup.model,
        world_size=setup.world,
        rank=setup.rank,
        kv_dtype=setup.dtype,
        layout=setup.layout,
        adapter=setup.adapter,
        adapter_path=setup.adapter_path,
        salt=setup.salt,
        tags=setup.tags,
    )
