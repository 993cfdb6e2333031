"""Why two systems do not find each other's blocks: the setting that is to blame.

Field reports 8 and 9 of the reference, section 13; goldens of LMCache and vLLM.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench import ArgumentError, ConfigError, load_registry
from kvbench.tokens.keycheck import KeyCheck, check_keys
from kvbench.tokens.keysetup import KeySetup, key_preset_names, parse_setup

REGISTRY = load_registry(autoload=False)
PROMPT = range(64)
MP = "algorithm=lmcache-mp-sha256-cbor,seed=0,chunk=16"
VLLM = "algorithm=vllm-sha256-cbor,seed=0,chunk=16"
ENGINE = "algorithm=lmcache-sha256-cbor,seed=0,chunk=16"


def setup(text: str) -> KeySetup:
    return parse_setup(text, REGISTRY, "--a")


def compare(a: str, b: str, tokens: Any = PROMPT) -> KeyCheck:
    return check_keys(setup(a), setup(b), list(tokens) if isinstance(tokens, range) else tokens, REGISTRY)


def effects(found: KeyCheck) -> dict[str, bool]:
    return {each.field: each.matters for each in found.differences}


# -- field reports and goldens -------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["lmcache-sha256", "lmcache-sha256-cbor", "vllm-sha256", "vllm-xxhash"])
def test_report_8_lmcache_1139_without_a_seed_two_processes_of_one_setup_share_nothing(algorithm: str) -> None:
    same = f"algorithm={algorithm},vllm=0.28,chunk=16"
    found = compare(same, same)
    assert (found.equal, found.equal_keys, found.first) == (False, 0, "seed")
    assert "draws a random root in each process unless PYTHONHASHSEED is set" in found.why
    assert found.differences == ()


def test_report_8_vllm_42625_with_the_same_seed_they_share_everything() -> None:
    same = "algorithm=lmcache-sha256-cbor,seed=0,chunk=16"
    found = compare(same, same)
    assert (found.equal, found.equal_keys, found.first) == (True, 4, None)


def test_report_8_the_builtin_hash_with_vllm_has_a_random_root() -> None:
    found = compare("lmcache,vllm=0.28,chunk=16", "lmcache,vllm=0.28,chunk=16")
    assert (found.equal, found.first) == (False, "none_hash")
    assert compare("lmcache,chunk=16", "lmcache,chunk=16").equal


def test_report_8_lmcache_2136_the_builtin_hash_of_none_is_an_address() -> None:
    same = "lmcache-mp,algorithm=lmcache-mp-builtin"
    found = compare(same, same)
    assert (found.equal, found.first) == (False, "algorithm")
    assert "an address before Python 3.12" in found.why
    assert compare(same, "lmcache-mp,chunk=16").first == "algorithm"


def test_report_9_lmcache_2979_ranks_with_other_roots_of_the_builtin_hash_share_nothing(shared: Path) -> None:
    runs = json.loads((shared / "golden/golden_lmcache.json").read_text())["in_process_ChunkedTokenDatabase"]["runs"]
    roots = [run["none_hash"] for run in runs if run["algorithm"] == "builtin" and run["pythonhashseed"] is None][1:]
    found = compare(*(f"lmcache,chunk=16,none_hash={root},world=2" for root in roots))
    assert (found.equal, found.first) == (False, "none_hash")
    assert "other roots (NONE_HASH)" in found.why
    named = compare(f"{ENGINE},world=2,rank=0", f"{ENGINE},world=2,rank=0")
    assert named.equal


def test_lmcache_mp_with_sha256_cbor_equals_vllm() -> None:
    found = compare(MP, VLLM)
    assert found.equal
    assert effects(found) == {"algorithm": False}


@pytest.mark.parametrize(
    ("change", "first"), [(("chunk=16", "chunk=32"), "chunk"), (("seed=0", "seed=1"), "seed")], ids=["chunk", "seed"]
)
def test_lmcache_mp_with_another_chunk_or_seed_does_not_equal_vllm(change: tuple[str, str], first: str) -> None:
    found = compare(MP.replace(*change), VLLM)
    assert (found.equal, found.first) == (False, first)
    assert effects(found) == {"algorithm": False, first: True}


@pytest.mark.parametrize("other", [MP, VLLM])
@pytest.mark.parametrize("fold", ["none", "first", "last"])
def test_lmcache_in_the_engine_never_equals_either(other: str, fold: str) -> None:
    """The empty tuple against None, before any folding."""
    found = compare(ENGINE, f"{other},fold={fold}")
    assert (found.equal, found.equal_keys, found.first) == (False, 0, "algorithm")
    assert "(parent, tokens, ())" in found.why


def test_events_of_vllm_carry_the_last_eight_bytes_and_lmcache_keeps_the_first() -> None:
    found = compare(f"{VLLM},fold=last", f"{MP},fold=first")
    assert (found.equal, found.first) == (False, "fold")
    assert found.a.hashes[0] == 0xB0147556276AFC9C == 12687895063098490012
    assert found.b.hashes[0] == 0xD830DE3D42C00F25
    assert compare(ENGINE, VLLM).a.hashes[0] == 0x7913E9343B88BDF9


def test_keys_are_those_of_the_goldens(shared: Path) -> None:
    golden = json.loads((shared / "golden/golden_lmcache.json").read_text())["keys_masks_segment"]
    key = f"{ENGINE},model=m,dtype=bfloat16,world=4,rank=2"
    found = compare(f"{key},tag.user=bob", f"{key},save_only_first_rank=true", range(16))
    assert found.a.texts == (golden["tagged_key"],)
    assert found.b.texts == (golden["mla_key"],)
    assert found.a.root == f"{golden['none_hash']:016x}"
    assert effects(found) == {"save_only_first_rank": True, "tags": True}


# -- which setting is to blame -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "a", "b", "why"),
    [
        (ENGINE, "dtype=half", "dtype=bfloat16", "part of a key of lmcache"),
        (ENGINE, "world=4", "world=8", "part of a key of lmcache"),
        (f"{ENGINE},world=2", "rank=0", "rank=1", "part of a key of lmcache"),
        (ENGINE, "model=x", "model=y", "part of a key of lmcache"),
        (ENGINE, "tag.user=alice", "tag.user=bob", "part of a key of lmcache"),
        (MP, "salt=x", "salt=y", "part of a key of lmcache-mp"),
        (VLLM, "adapter=x", "adapter=y", "extra key of each block"),
        (VLLM, "salt=x", "salt=y", "extra key of the first block"),
        (VLLM, "adapter=x,adapter_path=/x", "adapter=x,adapter_path=/y", "extra key of each block"),
        (VLLM, "images=x:0:8", "images=y:0:8", "extra key of the blocks that it overlaps"),
        (VLLM, "images=x:0:8", "images=x:1:7", "extra key of the blocks that it overlaps"),
        ("kvbench", "layout=x", "layout=y", "part of a key of kvbench"),
        ("kvbench", "tag.user=alice", "tag.user=bob", "part of a key of kvbench"),
        ("dynamo", "adapter=x", "adapter=y", "part of a key of dynamo"),
        ("kvbench", "adapter=a:", "adapter=a", "part of a key of kvbench"),
        ("dynamo", "namespace=x", "namespace=y", "a parameter of hash algorithm dynamo: cache namespace"),
        ("dynamo", "lookahead=0", "lookahead=1", "a parameter of hash algorithm dynamo: tokens behind a block"),
        (ENGINE.replace(",seed=0", ""), "none_hash=1", "none_hash=2", "other roots"),
        (ENGINE.replace(",seed=0", ""), "vllm=0.28", "vllm=0.33", "draws a random root"),
        (VLLM, "lookahead=0", "lookahead=1", "a parameter of hash algorithm vllm-sha256-cbor: tokens behind a block"),
    ],
)
def test_LM_11_one_setting_that_differs_is_to_blame(base: str, a: str, b: str, why: str) -> None:
    found = compare(f"{base},{a}", f"{base},{b}")
    (difference,) = found.differences
    assert (found.equal, found.equal_keys, found.first) == (False, 0, difference.field)
    assert difference.matters
    assert why in found.why
    assert compare(f"{base},{a}", f"{base},{a}").equal is ("vllm=0.28" not in a)


@pytest.mark.parametrize(
    ("a", "b", "field", "why"),
    [
        ("lmcache-mp,chunk=16,seed=0", "lmcache-mp,chunk=16,seed=1", "seed", "no parameter of lmcache-mp"),
        (f"{VLLM},model=x", f"{VLLM},model=y", "model", "not part of a key of vllm"),
        (f"{MP},model=x", f"{VLLM},model=y", "model", "not part of a key in both lmcache-mp and vllm"),
        (f"{ENGINE},adapter=x", f"{ENGINE},adapter=y", "adapter", "not part of a key of lmcache"),
        (f"{ENGINE},dtype=half", f"{ENGINE},dtype=torch.float16", "dtype", "two names of one type"),
        (f"{ENGINE},fold=none", f"{ENGINE},fold=last", "fold", "digests have 64 bits already"),
        (f"{ENGINE},tails=drop", f"{ENGINE},tails=keep", "tails", "the last block is full"),
        (f"{VLLM},tails=drop", f"{VLLM},tails=keep", "tails", "vllm never keys a partial block"),
        (f"{VLLM},vllm=0.30", f"{VLLM},vllm=0.33", "vllm", "the root is the same"),
        (f"{VLLM},adapter_path=/x", VLLM, "adapter_path", "it changes no key here"),
        (
            f"{ENGINE},save_only_first_rank=true,world=2",
            f"{ENGINE},save_only_first_rank=true,world=4",
            "world",
            "it changes no key here",
        ),
    ],
)
def test_a_setting_that_differs_without_effect_is_said_to_have_none(a: str, b: str, field: str, why: str) -> None:
    found = compare(a, b)
    assert found.equal
    assert {each.field: each.why for each in found.differences}[field] == why
    assert not any(effects(found).values())


def test_a_root_given_and_the_seed_that_leads_to_it_are_the_same() -> None:
    root = compare(VLLM, VLLM).a.root
    found = compare(VLLM, VLLM.replace("seed=0", f"none_hash={root}"))
    assert found.equal
    assert effects(found) == {"seed": False, "none_hash": False}


def test_keys_before_an_image_are_the_same_without_it() -> None:
    found = compare(f"{VLLM},images=x:40:4", VLLM)
    assert (found.equal, found.equal_keys, found.first) == (False, 2, "images")


@pytest.mark.parametrize(
    ("case", "extras"),
    [
        ("lora", "adapter=sql-adapter,adapter_path=/adapters/sql"),
        ("cache_salt", "salt=tenant-a"),
        ("mm_one_image_offset20_len20", "images=imghash0:20:20"),
        ("mm_two_images", "images=imgB:14:10 imgA:4:8"),
        ("lora+salt+mm", "adapter=sql-adapter,adapter_path=/adapters/sql,salt=tenant-a,images=imghash0:0:16"),
        ("lookahead1", "lookahead=1"),
    ],
)
def test_extra_keys_are_those_of_vllm(shared: Path, case: str, extras: str) -> None:
    golden = json.loads((shared / "golden/golden_vllm.json").read_text())
    runs = [run for run in golden["block_hashes"]["runs"] if run["pythonhashseed"] == "0"]
    (run,) = (run for run in runs if run["algorithm"] == "sha256_cbor")
    (wanted,) = (each for each in run["cases"] if each["case"] == case)
    tokens = golden["token_inputs_expanded"][wanted["token_input"]]
    found = compare(f"{VLLM},{extras}", VLLM, tokens)
    assert [digest.hex() for digest in found.a.hashes] == wanted["hashes_hex"]


def test_a_parameter_that_is_not_given_has_its_default() -> None:
    assert compare(f"{VLLM},lookahead=0,vllm=0.33", VLLM).differences == ()
    (difference,) = compare(f"{VLLM},vllm=0.30,adapter=x", f"{VLLM},adapter=x").differences
    assert (difference.a, difference.b, difference.matters) == ("0.30", "0.33", True)


def test_extra_keys_of_vllm_are_written_by_version() -> None:
    found = compare(f"{VLLM},adapter=x,vllm=0.30", f"{VLLM},adapter=x,vllm=0.31")
    assert (found.equal, found.first) == (False, "vllm")


def test_LM_12_the_order_of_tags_is_to_blame_in_lmcache_and_makes_no_difference_in_kvbench() -> None:
    one, two = "tag.a=1,tag.b=2", "tag.b=2,tag.a=1"
    lmcache = compare(f"{ENGINE},{one}", f"{ENGINE},{two}")
    assert (lmcache.equal, lmcache.first) == (False, "tags")
    assert "in another order" in lmcache.why
    assert compare(f"kvbench,{one}", f"kvbench,{two}").equal


def test_a_partial_last_block_has_a_key_on_one_side_only() -> None:
    found = compare(ENGINE, f"{ENGINE},tails=keep", range(70))
    assert (found.equal, found.equal_keys, found.first) == (False, 4, "tails")
    assert found.b.spans[-1] == (64, 70)


def test_of_several_settings_to_blame_the_first_is_named_and_the_others_are_listed() -> None:
    found = compare(f"{ENGINE},world=8,dtype=half,salt=x", f"{ENGINE.replace('seed=0', 'seed=1')},dtype=bfloat16")
    assert found.first == "seed"
    assert effects(found) == {"seed": True, "dtype": True, "world": True, "salt": False}


def test_name_and_path_of_an_adapter_are_not_put_together() -> None:
    """Semantics §2.1."""
    found = compare("kvbench,adapter=a:b", "kvbench,adapter=a,adapter_path=b")
    assert (found.equal, found.equal_keys, found.first) == (False, 0, "adapter")
    assert effects(found) == {"adapter": True, "adapter_path": True}


def test_a_random_root_on_both_sides_is_to_blame_before_the_chunk_size() -> None:
    found = compare("vllm,algorithm=vllm-xxhash", "vllm,algorithm=vllm-xxhash,chunk=32")
    assert found.first == "seed"


SETUPS = st.builds(
    lambda name, given: ",".join([f"algorithm={name}", *(f"{key}={value}" for key, value in given.items())]),
    st.sampled_from(
        [
            *("blake3", "sha256", "dynamo", "vllm-sha256", "vllm-sha256-cbor"),
            *("lmcache-mp", "lmcache-mp-sha256-cbor", "lmcache-sha256-cbor", "lmcache-sha256", "lmcache-builtin"),
        ]
    ),
    st.fixed_dictionaries(
        {"chunk": st.sampled_from([8, 16])},
        optional={
            "vllm": st.sampled_from(["0.30", "0.33"]),
            "none_hash": st.just("0x" + "0" * 63 + "1"),
            "fold": st.sampled_from(["none", "first", "last"]),
            "tails": st.sampled_from(["drop", "keep"]),
            "model": st.sampled_from("xy"),
            "dtype": st.sampled_from(["half", "float16", "bfloat16"]),
            "world": st.integers(1, 2),
            "save_only_first_rank": st.booleans(),
            "tag.a": st.sampled_from("xy"),
            "adapter": st.sampled_from("xy"),
            "adapter_path": st.sampled_from("xy"),
            "salt": st.sampled_from("xy"),
        },
    ),
)


def try_compare(a: KeySetup, b: KeySetup) -> KeyCheck | None:
    """None where a setup is none that its system has."""
    try:
        return check_keys(a, b, np.arange(40), REGISTRY)
    except ConfigError:
        return None


@settings(deadline=None, max_examples=200)
@given(a=SETUPS, b=SETUPS)
def test_setups_agree_once_all_settings_that_matter_do(a: str, b: str) -> None:
    one, two = setup(a), setup(b)
    found, back = try_compare(one, two), try_compare(two, one)
    if found is None:
        return
    assert back is not None
    assert (found.equal, found.equal_keys, effects(found)) == (back.equal, back.equal_keys, effects(back))
    assert found.a.unstable or check_keys(one, one, np.arange(40), REGISTRY).equal
    for each in found.differences:
        if each.matters:
            one = one.replaced(each.field, each.b)
    settled = try_compare(one, two)
    assert settled is not None
    assert settled.equal or settled.a.unstable or settled.b.unstable


# -- input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tokens",
    [
        tuple(PROMPT),
        np.arange(64, dtype=np.int32),
        np.arange(64, dtype=np.int64),
        np.arange(64, dtype=np.uint32),
        pa.array(PROMPT, pa.uint32()),
    ],
    ids=lambda tokens: type(tokens).__name__,
)
def test_LM_09_the_kind_of_sequence_makes_no_difference(tokens: Any) -> None:
    assert compare(VLLM, VLLM, tokens).a.hashes == compare(VLLM, VLLM).a.hashes


@pytest.mark.parametrize("name", key_preset_names())
def test_every_preset_makes_keys(name: str) -> None:
    found = compare(name, name, range(256))
    assert found.a.hashes
    assert found.equal


def test_too_few_tokens_and_bad_tokens_are_refused() -> None:
    with pytest.raises(ConfigError, match="15 tokens fill no block of 16 or 16"):
        compare(VLLM, VLLM, range(15))
    with pytest.raises(ArgumentError, match="-1"):
        compare(VLLM, VLLM, [-1] * 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ENGINE},dtype=complex64", "configuration a: dtype 'complex64' has no name in LMCache's keys"),
        ("lmcache,chunk=16,seed=0", "configuration a: seed = '0': with vLLM the root of LMCache's builtin hash"),
        (f"{VLLM},images=x", "configuration a: images = 'x': 'x' is not IDENTIFIER:FIRST:COUNT"),
        (f"{VLLM},images=x:1:0", "'x:1:0' is not IDENTIFIER:FIRST:COUNT"),
        (f"{MP},model=a@b", "configuration a: model 'a@b' has an @"),
        (f"{MP},salt=a@b", "configuration a: salt 'a@b' has '@', which LMCache's MP server refuses"),
        (f"{MP},salt=a@b,fold=first,model=m", "configuration a: salt 'a@b' has '@'"),
        (f"{MP},world=256", r"configuration a: world sizes and ranks \(256, 0, 256, 0\) must fit into a byte each"),
        ("algorithm=vllm-xxhash,vllm=0.12,chunk=16", "the first version with it is 0.13"),
    ],
)
def test_setups_that_their_system_does_not_have_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare(text, VLLM)
