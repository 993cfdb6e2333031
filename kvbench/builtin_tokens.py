"""The built-in token databases, and the hash algorithms that those of tokens are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.hookspecs import hookimpl
from kvbench.specs import HashAlgorithmSpec, Param, TokenDatabaseSpec

if TYPE_CHECKING:
    from collections.abc import Iterator


_ALGORITHM = Param("algorithm", str, "blake3", "hash algorithm; its own parameters may follow")


@hookimpl
def kvbench_token_databases() -> Iterator[TokenDatabaseSpec]:
    yield TokenDatabaseSpec(
        "chained",
        "kvbench.tokens.chained:ChainedDatabase",
        "hash each block of tokens with the hash of all before it",
        params=(_ALGORITHM,),
        source="kvbench semantics 2.2",
        reads=("token_ids",),
        hashes=True,
    )
    yield TokenDatabaseSpec(
        "ids",
        "kvbench.tokens.ids:IdsDatabase",
        "use the block ids that the trace carries",
        source="kvbench semantics 2.3",
        reads=("block_ids",),
    )
    yield TokenDatabaseSpec(
        "segment",
        "kvbench.tokens.segment:SegmentDatabase",
        "split prompts at a separator, and hash each segment alone",
        params=(_ALGORITHM, Param("separator", str, None, "token ids, set apart by spaces")),
        source="kvbench semantics 2.4",
        reads=("token_ids",),
        hashes=True,
        tails=False,
    )


_VLLM = "vLLM 0.33 v1/core/kv_cache_utils.py"
_LMCACHE = "LMCache 0.5.6 v1/token_database.py"
_LMCACHE_MP = "LMCache 0.5.6 v1/multiprocess"

_FUNCTIONS = {
    "sha256": ("SHA-256 of pickle 5", ()),
    "sha256-cbor": ("SHA-256 of canonical CBOR", ("cbor2",)),
    "xxhash": ("XXH3-128 of pickle 5", ("xxhash",)),
    "xxhash-cbor": ("XXH3-128 of canonical CBOR", ("cbor2", "xxhash")),
}
"""The hash functions of vLLM, which LMCache takes over: what is hashed how, and the packages they need."""

_SEED = Param("seed", str, None, "text of PYTHONHASHSEED, if it is set", optional=True)
_DIGEST_ROOT = Param("none_hash", str, None, "the root itself, in hexadecimal", optional=True)
_INT_ROOT = Param("none_hash", str, None, "the root itself, decimal or 0x…", optional=True)
_VLLM_BESIDE = Param("vllm", str, None, "version of vLLM, which sets the root where no seed does", optional=True)


@hookimpl
def kvbench_hash_algorithms() -> Iterator[HashAlgorithmSpec]:
    for name, function in (("blake3", "BLAKE3"), ("sha256", "SHA-256")):
        yield HashAlgorithmSpec(
            name,
            f"kvbench.tokens.hashes.plain:make_{name}",
            f"kvbench's own layout with {function}",
            source="kvbench semantics 2.2",
            layout=f"{function}(parent ‖ tokens as little-endian u32)",
            root="the namespace's",
        )
    yield HashAlgorithmSpec(
        "dynamo",
        "kvbench.tokens.hashes.dynamo:DynamoHash",
        "sequence hashes of Dynamo's router",
        params=(
            Param("adapter", str, "", "adapter of the requests"),
            Param("namespace", str, "", "cache namespace of the requests"),
            Param(
                "lookahead", int, 0, "tokens behind a block that it is hashed with: 1 for EAGLE", maximum=1, minimum=0
            ),
        ),
        source="ai-dynamo/dynamo lib/kv-router",
        layout="XXH3-64, seed 1337: (parent, XXH3-64 of the tokens as little-endian u32), little-endian u64",
        root="none: the first block is hashed alone",
        needs=("xxhash",),
    )
    yield from _lmcache()
    yield from _vllm()


def _lmcache() -> Iterator[HashAlgorithmSpec]:
    yield HashAlgorithmSpec(
        "lmcache-builtin",
        "kvbench.tokens.hashes.lmcache:make_lmcache_builtin",
        "LMCache in the engine with Python's own hash, its default",
        params=(Param("none_hash", str, "0", "the root, decimal or 0x…"),),
        source=_LMCACHE,
        layout="CPython's hash of (parent, tokens, ()), signed 64 bits",
        root="0 without vLLM, else given",
        caution="not a hash to identify content by: collisions can be made at will, and with vLLM its root differs "
        "from process to process",
    )
    for function, (layout, needs) in _FUNCTIONS.items():
        yield HashAlgorithmSpec(
            f"lmcache-{function}",
            f"kvbench.tokens.hashes.lmcache:make_lmcache_{function.replace('-', '_')}",
            f"LMCache in the engine with vLLM's {function.replace('-', '_')}",
            params=(_SEED, _INT_ROOT, _VLLM_BESIDE),
            source=_LMCACHE,
            layout=f"{layout}: (parent, tokens, ()); its first 8 bytes, big-endian",
            root="vLLM's, its first 8 bytes",
            needs=needs,
        )
    yield HashAlgorithmSpec(
        "lmcache-mp",
        "kvbench.tokens.hashes.plain:make_lmcache_mp",
        "LMCache's multi-process server, its default",
        source=_LMCACHE_MP,
        layout="BLAKE3(parent ‖ tokens as big-endian u32)",
        root="BLAKE3 of 12 zero bytes",
    )
    yield HashAlgorithmSpec(
        "lmcache-mp-sha256-cbor",
        "kvbench.tokens.hashes.vllm:make_lmcache_mp_sha256_cbor",
        "LMCache's multi-process server with vLLM's sha256_cbor",
        params=(_SEED, _DIGEST_ROOT, _VLLM_BESIDE),
        source=_LMCACHE_MP,
        layout=f"{_FUNCTIONS['sha256-cbor'][0]}: (parent, tokens, null)",
        root="vLLM's",
        needs=("cbor2",),
    )


def _vllm() -> Iterator[HashAlgorithmSpec]:
    for function, (layout, needs) in _FUNCTIONS.items():
        yield HashAlgorithmSpec(
            f"vllm-{function}",
            f"kvbench.tokens.hashes.vllm:make_vllm_{function.replace('-', '_')}",
            f"vLLM with {function.replace('-', '_')}",
            params=(
                _SEED,
                _DIGEST_ROOT,
                Param("vllm", str, "0.33", "version of vLLM, for extra keys and the root"),
                Param("lookahead", int, 0, "tokens behind a block in its hash", minimum=0, maximum=1024),
            ),
            source=_VLLM,
            layout=f"{layout}: (parent, tokens, extra keys or None)",
            root=f"{layout.split(' ')[0]} of the seed"
            + ("" if function.startswith("xxhash") else "; from 0.29 on of “vllm-none-hash” without one"),
            needs=needs,
        )
