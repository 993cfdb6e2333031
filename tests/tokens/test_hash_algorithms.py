"""Hash algorithms beyond the goldens of LMCache and vLLM: choice, determinism, cost."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kvbench
from kvbench import ArgumentError, ConfigError, PluginError
from kvbench.cli.root import root
from kvbench.plugins import Distribution
from kvbench.specs import HashAlgorithmSpec
from kvbench.tokens import BlockHasher, ChainHash, make_hash, token_array
from kvbench.tokens.hashes.dynamo import DynamoHash
from kvbench.tokens.hashes.vllm import VllmHash
from tests.prompts import token_trace

BUILTIN = kvbench.load_registry(autoload=False)
IDS = st.integers(0, 2**32 - 1)


def seeded(name: str) -> str:
    """A choice of every algorithm that any process can reproduce."""
    return f"{name},seed=0" if "xxhash" in name else name


ALL = [seeded(name) for name in BUILTIN.names(HashAlgorithmSpec)]


# -- the same everywhere -------------------------------------------------------------------------

PRINT_KEYS = """
import sys
from kvbench.tokens import BlockHasher
for choice in sys.argv[1:]:
    print(choice, BlockHasher(choice, block_tokens=16, tails="keep" if "vllm" not in choice else "drop").blocks(
        [0, 1, 2**31, 2**32 - 1] * 20).keys.tolist())
"""


def keys_in_a_process(hash_seed: str | None) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    env |= {} if hash_seed is None else {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", PRINT_KEYS, *ALL], env=env, capture_output=True, text=True, check=True)
    return done.stdout


def test_LM_10_keys_do_not_depend_on_the_hash_seed_of_the_process() -> None:
    """For every algorithm, Python's own hash included: it is computed, not asked for."""
    outputs = {keys_in_a_process(seed) for seed in ("0", "1", "random", None)}
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == len(ALL)


def test_LM_10_the_hash_of_python_is_flagged_wherever_it_is_used() -> None:
    lines = CliRunner().invoke(root, ["plugins"]).output.splitlines()
    assert any("caution" in line and "its root differs from process to process" in line for line in lines)
    table = token_trace([[1, 2, 3, 4]])
    flagged = kvbench.replay(table, tokens="chained,algorithm=lmcache-builtin").manifest
    assert flagged["cautions"][0].startswith("lmcache-builtin: not a hash to identify content by")
    assert "cautions" not in kvbench.replay(table).manifest


@pytest.mark.parametrize("choice", ALL)
def test_LM_09_tokens_may_come_in_any_form(choice: str) -> None:
    ids = [0, 1, 2**31 - 1, 5] * 8
    hasher = BlockHasher(make_hash(choice, BUILTIN), block_tokens=8)
    expected = hasher.blocks(ids).keys.tolist()
    forms: list[Any] = [tuple(ids), pa.array(ids, pa.uint32()), pa.array(ids), pa.chunked_array([ids[:3], ids[3:]])]
    forms += [np.array(ids, kind) for kind in (np.int32, np.int64, np.uint32, np.uint64, ">i4", ">u8")]
    forms += [np.array([ids, ids], np.uint32).T.copy()[:, 0], range(0)]
    found = [hasher.blocks(form).keys.tolist() for form in forms]
    assert found == [expected] * (len(forms) - 1) + [[]]


@given(parent=st.integers(-(2**63), 2**63 - 1), tokens=st.lists(IDS, max_size=20))
def test_LM_10_the_hash_of_a_tuple_is_that_of_this_interpreter(parent: int, tokens: list[int]) -> None:
    made = make_hash(f"lmcache-builtin,none_hash={parent}", BUILTIN)
    assert made.chain(parent, token_array(tokens)) == hash((parent, tuple(tokens), ()))


# -- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([1, -1], "token 1 has the id -1"),
        ([1, -2], "token 1 has the id -2"),
        ([2**32], "token 0 has the id 4294967296"),
        ([1, 2**64], "token 1 has the id 18446744073709551616"),
        (np.array([3, 2**40]), "token 1 has the id 1099511627776"),
        (np.array([2**63], np.uint64), "token 0 has the id 9223372036854775808"),
        ([1, 2.5], r"token 0 has the id 1.0|token 1 has the id 2.5"),
        (["a"], "token 0 has the id 'a'"),
        ([True, False], "token 0 has the id True"),
        ([[1, 2]], "tokens have 2 dimensions"),
        ([[1], [1, 2]], "not a sequence of ids"),
        (pa.array([1, None]), "tokens have 1 nulls"),
        (None, "tokens have 0 dimensions"),
    ],
)
def test_BUG_16_ids_outside_the_range_are_an_error_that_names_them(tokens: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        token_array(tokens)
    with pytest.raises(ValueError, match=message):
        token_array(tokens)


@pytest.mark.parametrize("choice", ALL)
def test_BUG_16_all_ids_of_32_bits_are_hashed_in_every_block(choice: str) -> None:
    """The predecessor overflowed at 2³¹ from the second block on."""
    made = make_hash(choice, BUILTIN)
    ids = [0, 2**31 - 1, 2**31, 2**32 - 1]
    keys = [made.keys(made.chain_blocks(made.root, token_array([7, 7, each, each]), 2)).tolist() for each in ids]
    assert len({first for first, _ in keys}) == 1
    assert len({second for _, second in keys}) == len(ids)


@pytest.mark.parametrize("choice", ALL)
def test_BUG_06_blocks_with_equal_python_hashes_have_different_keys(choice: str) -> None:
    """OP-04. Python's hash of -1 is that of -2, so a memo by it took one block for another; negative
    ids are errors here. 0 and 2⁶¹-1 have one hash, too: they are parents of different chains."""
    made = make_hash(choice, BUILTIN)
    assert hash(-1) == hash(-2)
    for bad in (-1, -2):
        with pytest.raises(ArgumentError, match=f"the id {bad}"):
            BlockHasher(made, block_tokens=4).blocks([1, 2, 3, bad])
    assert hash(0) == hash(2**61 - 1) == 0
    if made.form == "int" and choice != "lmcache-builtin":
        assert made.chain(0, token_array([5])) != made.chain(2**61 - 1, token_array([5]))


def test_OP_04_nothing_is_remembered_of_hashed_blocks() -> None:
    """A million distinct blocks would fill any memo."""
    made = make_hash("blake3", BUILTIN)
    tokens = np.arange(100_000, dtype=np.uint32)
    made.chain_blocks(made.root, tokens, 1)
    tracemalloc.start()
    try:
        for number in range(10):
            made.chain_blocks(made.root, tokens + np.uint32(number * 100_000), 1)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


# -- layouts -------------------------------------------------------------------------------------


def test_OP_03_every_block_has_the_same_layout_and_hashlib_alone_recomputes_it() -> None:
    """The predecessor pickled the first block, and wrote the others as raw bytes."""
    made = make_hash("sha256", BUILTIN)
    parent, tokens = made.root, [*range(100, 110)]
    assert isinstance(parent, bytes)
    for found, at in zip(made.chain_blocks(parent, token_array(tokens), 4), range(0, 10, 4), strict=True):
        part = tokens[at : at + 4]
        parent = hashlib.sha256(parent + struct.pack(f"<{len(part)}I", *part)).digest()
        assert found == parent


def test_dynamo_gives_the_hashes_of_its_own_tests() -> None:
    """lib/tokens/src/lib.rs: tokens 1 to 12 in blocks of 4, salt hash 1337."""
    made, tokens = make_hash("dynamo", BUILTIN), token_array(range(1, 13))
    assert isinstance(made, DynamoHash)
    assert made.chain_blocks(made.root, tokens, 4) == [
        14643705804678351452,
        4945711292740353085,
        12583592247330656132,
    ]
    assert [made.local(tokens[at : at + 4]) for at in (0, 4, 8)] == [
        14643705804678351452,
        16777012769546811212,
        483935686894639516,
    ]


def test_dynamo_sets_adapters_namespaces_and_images_apart() -> None:
    tokens = token_array(range(4))
    params: list[dict[str, str]] = [{}, {"adapter": "a"}, {"namespace": "a"}, {"adapter": "a", "namespace": "a"}]
    assert len({make_hash({"name": "dynamo", **each}).chain(None, tokens) for each in params}) == 4
    made = make_hash("dynamo", BUILTIN)
    assert made.chain(None, tokens, (2, 1)) == made.chain(None, tokens, (1, 2)) != made.chain(None, tokens, (1,))
    for bad in (-1, 2**64, "img"):
        with pytest.raises(ArgumentError, match="image hash"):
            made.chain(None, tokens, (1, bad))


def test_pickled_extra_keys_do_not_depend_on_which_equal_strings_are_one_object() -> None:
    made = make_hash("vllm-sha256", BUILTIN)
    tokens = token_array(range(4))
    one = "".join(["image", "-1"])
    other = "".join(["image", "-1"])
    assert one is not other
    same, twice = (("mm", one, 0), ("mm", one, 1)), (("mm", one, 0), ("mm", other, 1))
    assert made.chain(made.root, tokens, same) == made.chain(made.root, tokens, twice)


def test_vllm_hashes_prompt_embeddings_after_the_salt() -> None:
    made = make_hash("vllm-sha256", BUILTIN)
    assert isinstance(made, VllmHash)
    assert made.extra_keys(8, 4, salt="s", embeds=["d", None]) == [(("cache_salt", "s"), ("prompt_embeds", "d")), None]


@pytest.mark.parametrize("choice", ALL)
def test_a_parent_of_another_form_is_refused(choice: str) -> None:
    made = make_hash(choice, BUILTIN)
    for bad in (b"short", "text", 2**64):
        with pytest.raises(ArgumentError, match="digest"):
            made.chain(bad, token_array([1]))  # type: ignore[arg-type]


# -- choice --------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ALL)
def test_OP_10_every_algorithm_replays_and_its_name_is_in_the_result(choice: str) -> None:
    table = token_trace([[1, 2, 3, 4, 5], [1, 2, 9, 9], [1, 2, 3, 4]], tenant=["a", "a", "b"])
    result = kvbench.replay(table, tokens=f"chained,algorithm={choice}", keep_requests=True)
    assert result.requests is not None
    assert result.requests["hit_blocks"].to_pylist() == [0, 1, 0]
    chosen = result.manifest["config"]["tokens"]
    assert chosen["name"] == "chained"
    assert chosen["algorithm"] == choice.partition(",")[0]
    assert chosen.get("seed", "0") == "0"


class Sum(ChainHash):
    """A stranger's algorithm."""

    form = "int"

    def __init__(self, *, step: int) -> None:
        self.step = step

    @property
    def root(self) -> int:
        return 0

    def chain(self, parent: Any, tokens: Any, extra: Any = None, ahead: Any = None) -> int:
        return (parent * 31 + int(tokens.sum()) + self.step) % 2**64

    def key(self, digest: Any) -> int:
        return int(digest)


class Broken(Sum):
    def __init__(self) -> None:
        raise RuntimeError("no luck")


class Plugin:
    @staticmethod
    @kvbench.hookimpl
    def kvbench_hash_algorithms() -> Any:
        yield HashAlgorithmSpec("sum", Sum, "A sum.", params=(kvbench.Param("step", int, 1, "what is added"),))
        yield HashAlgorithmSpec("broken", Broken, "It cannot be made.")
        yield HashAlgorithmSpec("wrong", SimpleNamespace, "It makes something else.")
        yield HashAlgorithmSpec("far", Sum, "It needs what nobody has.", needs=("no_such_package",))


def test_OP_10_an_algorithm_of_a_plugin_is_chosen_like_the_built_in_ones() -> None:
    registry = kvbench.load_registry([(Plugin, Distribution("mine", "1.5"))], autoload=False)
    table = token_trace([[1, 2], [2, 1]])
    manifest = kvbench.replay(table, tokens="chained,algorithm=sum,step=3", registry=registry).manifest
    assert manifest["plugins"] == {"mine": "1.5"}
    assert manifest["config"]["tokens"] == {"name": "chained", "algorithm": "sum", "step": 3}
    for choice, kind, message in (
        ("broken", PluginError, "hash algorithm broken cannot be made: RuntimeError: no luck"),
        ("wrong", PluginError, "made a SimpleNamespace, not a ChainHash"),
        ("far", ConfigError, r"far needs the package no_such_package: pip install 'kvbench\[keys\]'"),
    ):
        with pytest.raises(kind, match=message):
            kvbench.replay(table, tokens=f"chained,algorithm={choice}", registry=registry)


@pytest.mark.parametrize("package", ["cbor2", "xxhash"])
def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    needing = [spec.name for spec in BUILTIN.specs(HashAlgorithmSpec) if package in spec.needs]
    monkeypatch.setitem(sys.modules, package, None)
    assert needing
    for name in needing:
        with pytest.raises(ConfigError, match=rf"{name} needs the package {package}: pip install 'kvbench\[keys\]'"):
            make_hash(name, BUILTIN)


def test_lookahead_leaves_the_last_block_out_and_tails_cannot_be_kept() -> None:
    table = token_trace([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3]])
    tokens = "chained,algorithm=vllm-sha256,lookahead=1"
    result = kvbench.replay(table, tokens=tokens, keep_requests=True)
    assert result.requests is not None
    assert result.requests["hit_blocks"].to_pylist() == [0, 1, 1]
    with pytest.raises(ConfigError, match="--tails keep has no effect with a lookahead of 1"):
        kvbench.replay(table, tokens=tokens, tails="keep")
