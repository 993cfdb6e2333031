"""Hashes of the real systems, bit for bit: ``golden_lmcache.json`` and ``golden_vllm.json``.

The values were made by LMCache 0.5.6 and vLLM 0.33.0 themselves; neither is imported here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvbench
from kvbench import ArgumentError, ConfigError
from kvbench.specs import HashAlgorithmSpec
from kvbench.tokens import BlockHasher, ChainHash, HashedBlocks, make_hash, token_array
from kvbench.tokens.hashes.roots import OWN_TEXT
from kvbench.tokens.hashes.triples import fold
from kvbench.tokens.hashes.vllm import Image, VllmHash

BUILTIN = kvbench.load_registry(autoload=False)
ADAPTER, SALT, IMAGE = ("sql-adapter", "/adapters/sql"), "tenant-a", "imghash0"
EXTRAS: dict[str, dict[str, Any]] = {
    "lora": {"adapter": ADAPTER},
    "cache_salt": {"salt": SALT},
    "mm_one_image_offset20_len20": {"images": [Image(IMAGE, 20, 20)]},
    "mm_two_images": {"images": [Image("imgA", 4, 8), Image("imgB", 14, 10)]},
    "lora+salt+mm": {"adapter": ADAPTER, "salt": SALT, "images": [Image(IMAGE, 0, 16)]},
}
"""What each case of vLLM says of its request beside the tokens."""


def load(shared: Path, name: str) -> dict[str, Any]:
    found = json.loads((shared / "golden" / name).read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def lmcache(shared: Path) -> dict[str, Any]:
    return load(shared, "golden_lmcache.json")


@pytest.fixture(scope="module")
def vllm(shared: Path) -> dict[str, Any]:
    return load(shared, "golden_vllm.json")


def tuples(blocks: HashedBlocks) -> tuple[list[int], list[int], list[Any]]:
    return blocks.starts.tolist(), blocks.ends.tolist(), blocks.digests


# -- LMCache in the engine -----------------------------------------------------------------------


def engine_algorithm(run: dict[str, Any]) -> ChainHash:
    """The algorithm of a run; where the one asked for is missing, LMCache falls back to Python's hash."""
    if run["hash_func"] == "hash":
        return make_hash(f"lmcache-builtin,none_hash={run['none_hash']}", BUILTIN)
    function = run["algorithm"].removesuffix("_64bit").replace("_", "-")
    seed = {} if run["pythonhashseed"] is None else {"seed": run["pythonhashseed"]}
    return make_hash({"name": f"lmcache-{function}", **seed}, BUILTIN)


def test_all_448_cases_of_the_engine_and_their_roots(lmcache: dict[str, Any]) -> None:
    inputs = lmcache["token_inputs_expanded"]
    cases = hashes = 0
    for run in lmcache["in_process_ChunkedTokenDatabase"]["runs"]:
        hashing = engine_algorithm(run)
        assert hashing.root == run["none_hash"]
        for case in run["cases"]:
            tails: Any = "keep" if case["save_unfull_chunk"] else "drop"
            hasher = BlockHasher(hashing, block_tokens=case["chunk_size"], tails=tails)
            found = hasher.blocks(inputs[case["case"]])
            assert tuples(found) == (case["starts"], case["ends"], case["hashes"])
            assert found.keys.tolist() == [value % 2**64 for value in case["hashes"]]
            cases += 1
            hashes += len(found)
    assert (cases, hashes) == (448, 5_200)


def test_the_generated_input_is_what_its_rule_gives(lmcache: dict[str, Any]) -> None:
    state, tokens = 12345, []
    for _ in range(2048):
        state = (1103515245 * state + 12345) % 2**31
        tokens.append(state % 151936)
    assert lmcache["token_inputs_expanded"]["lcg_2048"] == tokens


def test_a_random_root_of_the_engine_must_be_given(lmcache: dict[str, Any]) -> None:
    """Two runs with vLLM and without a seed hash the same tokens to different values: the root, a
    string's hash, is another one in each process."""
    unseeded = [
        run
        for run in lmcache["in_process_ChunkedTokenDatabase"]["runs"]
        if run["algorithm"] == "builtin" and run["env"]["mode"] == "vllm" and run["pythonhashseed"] is None
    ]
    first, second = unseeded
    assert first["none_hash"] != second["none_hash"]
    assert first["cases"][0]["hashes"] != second["cases"][0]["hashes"]
    assert BUILTIN.get(HashAlgorithmSpec, "lmcache-builtin").caution


# -- LMCache's multi-process server --------------------------------------------------------------


def server_runs(lmcache: dict[str, Any]) -> list[tuple[ChainHash, dict[str, Any]]]:
    runs = {run["algorithm"]: run for run in lmcache["mp_TokenHasher"]["runs"]}
    # Its builtin run has no cases: the hash of None is an address before Python 3.12.
    assert runs.pop("builtin")["cases"] == []
    names = {"blake3": "lmcache-mp", "sha256_cbor": "lmcache-mp-sha256-cbor,seed=0"}
    assert set(runs) == set(names)
    return [(make_hash(names[name], BUILTIN), run) for name, run in runs.items()]


def test_all_24_cases_of_the_server_and_their_roots(lmcache: dict[str, Any]) -> None:
    inputs = lmcache["token_inputs_expanded"]
    cases = hashes = 0
    for hashing, run in server_runs(lmcache):
        assert isinstance(hashing.root, bytes)
        assert hashing.root.hex() == run["none_hash"]
        for case in run["cases"]:
            found = BlockHasher(hashing, block_tokens=case["chunk_size"]).blocks(inputs[case["case"]])
            assert [digest.hex() for digest in found.digests if isinstance(digest, bytes)] == case["hashes_hex"]
            cases += 1
            hashes += len(found)
    assert (cases, hashes) == (24, 572)


def test_a_range_of_the_server_is_a_slice_and_bad_tokens_are_refused(lmcache: dict[str, Any]) -> None:
    hashing, run = server_runs(lmcache)[0]
    asked = run["start_end"]
    hasher = BlockHasher(hashing)
    found = hasher.blocks(range(1024), start=asked["start"], end=asked["end"])
    assert [digest.hex() for digest in found.digests if isinstance(digest, bytes)] == asked["hashes_hex"]
    assert found.digests == hasher.blocks(range(1024)).digests[1:3]
    for bad in (2**32, -1):
        with pytest.raises(ArgumentError, match=f"token 300 has the id {bad}"):
            hasher.blocks([*range(300), bad, *range(211)])


# -- vLLM ----------------------------------------------------------------------------------------


def vllm_algorithm(run: dict[str, Any], **params: Any) -> VllmHash:
    random = run["pythonhashseed"] is None and run["algorithm"].startswith("xxhash")
    seed = run["none_hash_seed"] if random else run["pythonhashseed"]
    given = {} if seed is None else {"seed": seed}
    made = make_hash({"name": "vllm-" + run["algorithm"].replace("_", "-"), **given, **params}, BUILTIN)
    assert isinstance(made, VllmHash)
    return made


def test_all_112_cases_of_vllm_and_their_roots(vllm: dict[str, Any]) -> None:
    inputs = vllm["token_inputs_expanded"]
    cases = hashes = 0
    for run in vllm["block_hashes"]["runs"]:
        for case in run["cases"]:
            hashing = vllm_algorithm(run, lookahead=case["lookahead"])
            assert hashing.root.hex() == run["none_hash"]
            tokens, block = inputs[case.get("token_input", case["case"])], case["block_size"]
            extras = hashing.extra_keys(len(tokens), block, **EXTRAS.get(case["case"], {}))
            found = BlockHasher(hashing, block_tokens=block).blocks(tokens, extras=extras)
            assert [digest.hex() for digest in found.digests if isinstance(digest, bytes)] == case["hashes_hex"]
            cases += 1
            hashes += len(found)
    assert (cases, hashes) == (112, 456)


def test_extra_keys_of_vllm_are_written_as_in_its_version(vllm: dict[str, Any]) -> None:
    """The copies in its events are in the style of versions 0.19 to 0.30."""
    tagged, untagged, oldest = (
        make_hash({"name": "vllm-sha256", "vllm": version, "seed": "0"}) for version in ("0.33", "0.30.1", "0.18")
    )
    assert isinstance(tagged, VllmHash)
    assert isinstance(untagged, VllmHash)
    assert isinstance(oldest, VllmHash)
    assert (tagged.style, untagged.style, oldest.style) == (">=0.31", "0.19-0.30", "<=0.18")
    cases = {case["case"]: case for case in vllm["block_hashes"]["runs"][0]["cases"]}
    for name, request in EXTRAS.items():
        length = len(vllm["token_inputs_expanded"][cases[name]["token_input"]])
        for hashing, field in ((tagged, "hash_extra_keys"), (untagged, "event_extra_keys")):
            found = hashing.extra_keys(length, 16, **request)
            assert json.loads(json.dumps(found)) == cases[name][field]
    assert oldest.extra_keys(32, 16, **EXTRAS["mm_two_images"]) == [("imgA", "imgB"), ("imgB",)]


def test_the_key_of_vllm_is_the_hash_of_its_events_and_never_the_fold_of_lmcache(vllm: dict[str, Any]) -> None:
    for run in vllm["block_hashes"]["runs"]:
        (low,) = (value for name, value in run.items() if name.startswith("int64_of_first"))
        digest = bytes.fromhex(run["cases"][0]["hashes_hex"][0])
        assert vllm_algorithm(run).key(digest) == low
        assert fold(digest) != low


def test_the_server_of_lmcache_and_vllm_agree_on_text_and_the_engine_with_neither(lmcache: dict[str, Any]) -> None:
    """With one function, seed and block size."""
    tokens = token_array(lmcache["token_inputs_expanded"]["range_1024"][:64])
    server, vllm, engine = (
        make_hash(f"{name}-sha256-cbor,seed=0", BUILTIN) for name in ("lmcache-mp", "vllm", "lmcache")
    )
    assert server.root == vllm.root
    assert server.chain_blocks(server.root, tokens, 16) == vllm.chain_blocks(vllm.root, tokens, 16)
    assert isinstance(vllm.root, bytes)
    assert engine.root == fold(vllm.root)
    assert f"{engine.chain(engine.root, tokens[:16]):x}" == "7913e9343b88bdf9"
    assert f"{vllm.key(vllm.chain(vllm.root, tokens[:16])):x}" == "b0147556276afc9c"


# -- roots that nobody can know ------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice",
    [
        "vllm-xxhash",
        "vllm-xxhash-cbor",
        "lmcache-xxhash",
        "lmcache-xxhash-cbor",
        "vllm-sha256,vllm=0.28",
        "vllm-sha256-cbor,vllm=0.11.2",
        "lmcache-sha256,vllm=0.28.1",
        "lmcache-mp-sha256-cbor,vllm=0.28",
    ],
)
def test_a_random_root_is_refused_with_the_reason_unless_it_is_given(choice: str) -> None:
    with pytest.raises(
        ConfigError, match=r"draws a random root in each process unless PYTHONHASHSEED is set.*none_hash"
    ):
        make_hash(choice, BUILTIN)
    name = choice.partition(",")[0]
    seeded = make_hash(f"{name},seed=0", BUILTIN)
    root = seeded.root.hex() if isinstance(seeded.root, bytes) else str(seeded.root)
    assert make_hash(f"{name},none_hash={root}", BUILTIN).root == seeded.root


def test_without_a_seed_the_newer_versions_hash_a_text_of_their_own() -> None:
    assert make_hash("vllm-sha256,vllm=0.29").root == make_hash(f"vllm-sha256,seed={OWN_TEXT}").root


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("vllm-sha256,seed=0,none_hash=00", "seed = '0' has no effect where none_hash is given"),
        ("vllm-sha256,none_hash=00", "is not the hexadecimal text of 32 bytes"),
        ("vllm-xxhash,none_hash=zz", "is not the hexadecimal text of 16 bytes"),
        ("vllm-sha256,vllm=new", "vllm = 'new' is not a version of vLLM, such as 0.33"),
        ("vllm-xxhash,vllm=0.12,seed=0", "vllm = 0.12 has no xxhash; the first version with it is 0.13"),
        ("lmcache-sha256,seed=0,vllm=0.33", "vllm = 0.33 has no effect where seed or none_hash is given"),
        ("lmcache-mp-sha256-cbor,seed=0,vllm=0.33", "vllm = 0.33 has no effect where seed or none_hash is given"),
        ("lmcache-sha256,none_hash=-1", "none_hash = '-1' is not an integer from 0 to"),
        ("lmcache-builtin,none_hash=x", "none_hash = 'x' is not an integer from -9223372036854775808 to"),
        ("lmcache-sha256,seed=0,none_hash=1", "seed = '0' has no effect where none_hash is given"),
        ("blake3,seed=0", "hash algorithm blake3: unknown parameter 'seed'; it takes none"),
        ("vllm-sha256,sed=0", "unknown parameter 'sed'; it takes lookahead, none_hash, seed, vllm"),
        ("dynamo,lookahead=2", "parameter lookahead = '2' is above 1"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_value(choice: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("'", ".")):
        make_hash(choice, BUILTIN)
