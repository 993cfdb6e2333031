"""Keys as text: kvbench's own form, and those of LMCache's engine and MP server."""

from __future__ import annotations

import dataclasses
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench import ConfigError
from kvbench.tokens.cachekey import CacheKey
from kvbench.tokens.lmcachekey import DTYPES, LmcacheKey, ObjectKey, lmcache_dtype, pack_kv_rank

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
ANY_TEXT = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(
    ["a@b", "100%", "%40", "k=v&x", "a+b c", ""]
)
HASHES = st.integers(-(2**63), 2**64 - 1) | st.binary(min_size=1, max_size=32)
PLAIN = st.text(st.characters(exclude_characters="@%", codec="utf-8"), max_size=8)

KEYS = st.builds(
    CacheKey,
    HASHES,
    model=ANY_TEXT,
    world_size=st.integers(1, 2**16),
    rank=st.integers(0, 2**16),
    kv_dtype=ANY_TEXT,
    layout=ANY_TEXT,
    adapter=ANY_TEXT,
    adapter_path=ANY_TEXT,
    salt=ANY_TEXT,
    tags=st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=4).map(lambda tags: tuple(tags.items())),
)
ONE = CacheKey(
    0xB8A960CFCC69E7A5, MODEL, 4, 2, kv_dtype="bfloat16", layout="vllm", adapter="sql v2", tags=(("user", "alice"),)
)
CHANGES: list[dict[str, Any]] = [
    {"model": "meta-llama/Llama-3.1-8B"},
    {"world_size": 8},
    {"rank": 3},
    {"chunk_hash": 0xB8A960CFCC69E7A4},
    {"kv_dtype": "fp8_e4m3fn"},
    {"layout": "sglang"},
    {"adapter": "sql v3"},
    {"adapter_path": "/adapters/sql"},
    {"salt": "tenant-b"},
    {"tags": (("user", "bob"),)},
]


# -- kvbench's own form --------------------------------------------------------------------------


@given(key=KEYS)
def test_OP_06_text_and_dict_forms_of_any_key_read_back_as_the_key(key: CacheKey) -> None:
    assert CacheKey.from_text(key.to_text()) == key
    assert CacheKey.from_dict(json.loads(json.dumps(key.to_dict()))) == key


@given(one=KEYS, two=KEYS)
def test_LM_13_different_keys_have_different_texts(one: CacheKey, two: CacheKey) -> None:
    assert (one == two) is (one.to_text() == two.to_text())


def test_the_text_form_is_the_documented_one() -> None:
    assert ONE.to_text() == (
        "kvbench:model=meta-llama/Llama-3.1-8B-Instruct&world=4&rank=2&hash=0xb8a960cfcc69e7a5"
        "&dtype=bfloat16&layout=vllm&adapter=sql%20v2&tag.user=alice"
    )
    assert CacheKey(b"\x00\xff", tags=(("a@b", "50%"),)).to_text() == "kvbench:hash=bytes:00ff&tag.a%40b=50%25"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_LM_11_OP_07_a_key_that_differs_in_one_field_does_not_hit(change: dict[str, Any]) -> None:
    chunks = [dataclasses.replace(ONE, chunk_hash=number) for number in range(4)]
    stored = {*chunks, ONE}
    other = dataclasses.replace(ONE, **change)
    assert dataclasses.replace(ONE) in stored
    assert other not in stored
    assert other.to_text() != ONE.to_text()
    assert (other.namespace().root() == ONE.namespace().root()) is ("chunk_hash" in change)


def test_LM_12_the_order_of_tags_makes_no_other_key() -> None:
    tags = (("user", "alice"), ("tier", "gold"), ("zone", "eu"))
    made = {CacheKey(1, tags=order) for order in permutations(tags)}
    assert len(made) == len({key.to_text() for key in made}) == len({key.namespace().root() for key in made}) == 1


def test_LM_12_an_empty_tag_is_an_absent_one() -> None:
    assert CacheKey(1, tags=(("user", ""),)) == CacheKey(1)
    assert CacheKey(1, tags=(("user", ""),)).namespace().is_empty()


def test_a_number_is_no_digest() -> None:
    assert CacheKey(255) != CacheKey(b"\xff")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{MODEL}@1@0@ff@half", "is no key of kvbench: those begin with kvbench:"),
        ("kvbench:", "is no key of kvbench|needs a field hash"),
        ("kvbench:model=m", "needs a field hash"),
        ("kvbench:hash=ff", "hash = 'ff' must be 0x"),
        ("kvbench:hash=bytes:0g", "hash = 'bytes:0g' must be 0x"),
        ("kvbench:hash=bytes:", "chunk_hash is empty"),
        ("kvbench:hash=0x1&hash=0x1", "hash stands twice"),
        ("kvbench:hash=0x1&tag.a=1&tag.a=2", "tag.a stands twice"),
        ("kvbench:hash=0x1&words=1", "has no field 'words'; it has adapter, adapter_path, dtype, hash"),
        ("kvbench:hash=0x1&world=x", "world = 'x' must be a whole number"),
        ("kvbench:hash=0x1&world=0", "world_size = 0 is below 1"),
        ("kvbench:hash=0x1&rank=-1", "rank = -1 is below 0"),
        ("kvbench:hash=0x1&model=%FF", "is no key of kvbench"),
        ("kvbench:hash", "is no key of kvbench"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CacheKey.from_text(text)


def test_the_parts_of_an_adapter_are_not_put_together() -> None:
    """Semantics §2.1: fields are typed, never concatenated."""
    keys = [
        CacheKey(1, adapter=name, adapter_path=path) for name, path in (("a:b", ""), ("a", "b"), ("a:", ""), ("a", ""))
    ]
    assert len({key.namespace().root() for key in keys}) == len({key.to_text() for key in keys}) == len(keys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            ({name: 3}, f"{name} = 3 must be text")
            for name in ("model", "kv_dtype", "layout", "adapter", "adapter_path")
        ),
        ({"salt": None}, "salt = None must be text"),
        ({"salt": b"x"}, "salt = b'x' must be text"),
        ({"tags": (("a", 1),)}, "tag 'a' = 1 must be text"),
        ({"tags": (("a", None),)}, "tag 'a' = None must be text"),
        ({"tags": ((1, "a"),)}, "name of a tag = 1 must be text"),
        ({"tags": {"a": "1"}}, "tags = {'a': '1'} must be pairs of name and value"),
        ({"tags": ("ab",)}, r"tags = \('ab',\) must be pairs of name and value"),
    ],
)
def test_a_key_refuses_what_should_be_text_and_is_not(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CacheKey(1, **change)


def test_a_repeated_tag_and_a_value_that_is_no_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="tag 'a' twice"):
        CacheKey(1, tags=(("a", "1"), ("a", "2")))
    with pytest.raises(ConfigError, match="model = 5 must be text"):
        CacheKey.from_dict({"hash": "0x1", "model": 5})
    with pytest.raises(ConfigError, match="tags = 5 must be a table"):
        CacheKey.from_dict({"hash": "0x1", "tags": 5})


# -- LMCache's engine ----------------------------------------------------------------------------


@pytest.fixture
def golden(shared: Path) -> dict[str, Any]:
    document = json.loads((shared / "golden/golden_lmcache.json").read_text())
    found = document["keys_masks_segment"]
    assert isinstance(found, dict)
    return found


def golden_key(case: dict[str, Any]) -> LmcacheKey:
    given = {"chunk_hash": 0xB8A960CFCC69E7A5, "dtype": "torch.bfloat16", "request_configs": {}, **case["in"]}
    number = given["chunk_hash"]
    return LmcacheKey(
        given.get("model_name", MODEL),
        given.get("world_size", 2),
        given.get("worker_id", 1),
        bytes.fromhex(number) if isinstance(number, str) else number,
        given["dtype"],
        tuple(given["request_configs"].items()),
    )


def test_LM_13_text_dict_and_layer_forms_are_those_of_lmcache(golden: dict[str, Any]) -> None:
    assert len(golden["key_strings"]) == 12
    for case in golden["key_strings"]:
        key = golden_key(case)
        layer = dataclasses.replace(key, layer=3)
        assert key.to_text() == case["to_string"], case["name"]
        assert key.to_dict() == case["to_dict"], case["name"]
        assert layer.to_text() == case["layer3_to_string"], case["name"]
        assert (LmcacheKey.from_text(key.to_text()) == key) is case["parse_equal"], case["name"]
        assert (LmcacheKey.from_text(layer.to_text()) == layer) is case["layer_parse_equal"], case["name"]
        assert LmcacheKey.from_dict(key.to_dict()) == key, case["name"]
        assert key.traps() == [] or case["name"] in ("bytes_hash", "tags", "tags_order")


def test_LM_12_lmcache_tells_orders_of_tags_apart_and_kvbench_does_not(golden: dict[str, Any]) -> None:
    cases = {case["name"]: golden_key(case) for case in golden["key_strings"]}
    assert (cases["tags"] == cases["tags_order"]) is golden["tags_order_equal"] is False
    assert cases["tags"].to_key() == cases["tags_order"].to_key()
    assert cases["tags"].traps() == ["LMCache takes the same tags in another order for another key"]


def test_LM_12_a_config_that_is_no_tag_leaves_the_key_alone(golden: dict[str, Any]) -> None:
    cases = {case["name"]: golden_key(case) for case in golden["key_strings"]}
    assert cases["nontag"] == cases["plain"] == cases["emptyreq"]
    assert cases["nontag"].to_text() == cases["plain"].to_text()
    assert cases["nontag"].to_dict() != cases["plain"].to_dict()


def test_texts_that_lmcache_refuses_are_refused(golden: dict[str, Any]) -> None:
    texts = [case["in"] for case in golden["parse_errors"]]
    assert len(texts) == 5
    for text in [*texts, golden["at_in_model"]["s"]]:
        with pytest.raises(ConfigError, match="is no key of LMCache"):
            LmcacheKey.from_text(text)


def test_LM_13_a_model_with_an_at_is_written_as_lmcache_writes_it_and_named_as_a_trap(golden: dict[str, Any]) -> None:
    key = LmcacheKey("org/mo@del", 2, 1, 0xB8A960CFCC69E7A5, "bfloat16")
    assert key.to_text() == golden["at_in_model"]["s"]
    assert key.traps() == ["model 'org/mo@del' has an @, so LMCache cannot read the text back"]
    assert CacheKey.from_text(key.to_key().to_text()) == key.to_key()


def test_names_of_dtypes_are_those_of_lmcache(golden: dict[str, Any]) -> None:
    assert {f"torch.{name}": text for name, text in DTYPES.items()} == golden["dtype_strings"]
    with pytest.raises(ConfigError, match=r"'torch\.complex64' has no name in LMCache's keys"):
        lmcache_dtype("torch.complex64")


def test_under_save_only_first_rank_the_world_is_one_and_the_worker_stays(golden: dict[str, Any]) -> None:
    key = LmcacheKey("m", 4, 2, 0x7913E9343B88BDF9, "bfloat16")
    assert key.to_text() == golden["non_mla_key"]
    assert key.stored_once().to_text() == golden["mla_key"]
    tagged = dataclasses.replace(key, configs=(("lmcache.tag.user", "bob"),))
    assert tagged.to_text() == golden["tagged_key"]


@given(
    model=PLAIN,
    sizes=st.tuples(st.integers(1, 512), st.integers(0, 512)),
    number=st.integers(-(2**63), 2**64 - 1),
    dtype=st.sampled_from(sorted(DTYPES)),
    tags=st.dictionaries(PLAIN, PLAIN, max_size=3),
    layer=st.none() | st.integers(0, 200),
)
def test_LM_13_a_key_of_lmcache_without_traps_reads_back(
    model: str, sizes: tuple[int, int], number: int, dtype: str, tags: dict[str, str], layer: int | None
) -> None:
    configs = tuple((f"lmcache.tag.{name}", value) for name, value in tags.items())
    key = LmcacheKey(model, *sizes, number, dtype, configs, layer)
    assert LmcacheKey.from_text(key.to_text()) == key
    assert [trap for trap in key.traps() if "order" not in trap] == []


def test_a_tag_with_an_at_reads_back_as_two_tags_in_lmcache() -> None:
    key = LmcacheKey("m", 1, 0, 1, "half", (("lmcache.tag.a", "x@b%y"),))
    assert LmcacheKey.from_text(key.to_text()).tags == (("a", "x"), ("b", "y"))
    assert key.traps() == ["tag a=x@b%y has an @, or a % in its name, so LMCache reads other tags back"]


@pytest.mark.parametrize(
    "change",
    [
        {"model": "n"},
        {"world_size": 8},
        {"worker_id": 1},
        {"chunk_hash": 2},
        {"dtype": "bfloat16"},
        {"configs": (("lmcache.tag.a", "y"),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_LM_11_each_of_the_six_fields_makes_another_key_of_lmcache(change: dict[str, Any]) -> None:
    key = LmcacheKey("m", 4, 0, 1, "half", (("lmcache.tag.a", "x"),))
    other = dataclasses.replace(key, **change)
    assert dataclasses.replace(key) in {key}
    assert other not in {key}
    assert other.to_text() != key.to_text()
    assert other.to_key() != key.to_key()


def test_a_file_on_lmcaches_disk_has_dashes_for_slashes() -> None:
    key = LmcacheKey(MODEL, 1, 0, 0xABC, "half")
    assert key.file_name() == "meta-llama-Llama-3.1-8B-Instruct@1@0@abc@half.pt"


def test_a_layers_key_has_no_dict_form() -> None:
    with pytest.raises(ConfigError, match="layer = 3: LMCache's dict form is one of whole chunks"):
        LmcacheKey("m", 1, 0, 1, "half", layer=3).to_dict()


@pytest.mark.parametrize("change", [{"dtype": "nope"}, {"world_size": "x"}, {"chunk_hash": "zz"}])
def test_dict_forms_with_wrong_fields_are_refused(change: dict[str, Any]) -> None:
    fields = {**LmcacheKey("m", 1, 0, 1, "half").to_dict(), **change}
    with pytest.raises(ConfigError, match=r"nope|is no dict form of a key of LMCache"):
        LmcacheKey.from_dict(fields)


# -- LMCache's MP server -------------------------------------------------------------------------


@pytest.fixture
def mp(shared: Path) -> dict[str, Any]:
    document = json.loads((shared / "golden/golden_lmcache.json").read_text())
    found = document["mp_TokenHasher"]["runs"][0]
    assert isinstance(found, dict)
    return found


def test_the_rank_of_an_object_is_packed_as_in_lmcache_mp(mp: dict[str, Any]) -> None:
    assert pack_kv_rank(8, 5, 4, 1) == mp["kv_rank"]["ws8_gr5_lws4_lr1"]
    assert pack_kv_rank(1, 0, 1, 0) == mp["kv_rank"]["ws1"]
    with pytest.raises(ConfigError, match="must fit into a byte each"):
        pack_kv_rank(256, 0, 1, 0)


def test_keys_that_lmcache_mp_refuses_are_refused(mp: dict[str, Any]) -> None:
    refused: dict[str, dict[str, Any]] = {
        "at_model": {"model": "a@b"},
        "salt_slash": {"salt": "a/b"},
        "salt_long": {"salt": "x" * 129},
        "neg_group": {"group": -1},
    }
    assert refused.keys() == mp["object_key_errors"].keys()
    for change in refused.values():
        with pytest.raises(ConfigError):
            ObjectKey(**{"chunk_hash": b"\x01", "model": "m", "kv_rank": 0, **change})


@pytest.mark.parametrize("salt", ["@", "/", "\\", "\0"])
def test_a_salt_has_none_of_the_characters_that_cut_a_file_name(salt: str) -> None:
    with pytest.raises(ConfigError, match="which LMCache's MP server refuses"):
        ObjectKey(b"\x01", "m", 0, salt=f"a{salt}b")


def test_the_file_name_of_an_object_is_the_documented_one() -> None:
    key = ObjectKey(bytes.fromhex("00ff"), MODEL, pack_kv_rank(8, 5, 4, 1), group=17)
    assert key.file_name() == "meta-llama-SEP-Llama-3.1-8B-Instruct@0x08050401@11@00ff.data"
    assert dataclasses.replace(key, salt="t").file_name().endswith("@11@00ff@t.data")


@given(
    digest=st.binary(min_size=1, max_size=32),
    model=PLAIN.filter(lambda text: "-SEP-" not in text),
    rank=st.integers(0, 2**32 - 1),
    group=st.integers(0, 2**16),
    salt=st.text(st.characters(exclude_characters="@/\\\0", codec="utf-8"), max_size=128),
)
def test_the_file_name_of_an_object_reads_back(digest: bytes, model: str, rank: int, group: int, salt: str) -> None:
    key = ObjectKey(digest, model, rank, group, salt)
    assert ObjectKey.from_file_name(key.file_name()) == key


@pytest.mark.parametrize("name", ["m@0x1@0@ff", "m@0x1@0.data", "m@zz@0@ff.data", "m@0x1@0@fg.data", "m@0x1@0@f.data"])
def test_other_file_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no file of LMCache's MP server"):
        ObjectKey.from_file_name(name)


def test_every_form_says_whose_it_is() -> None:
    assert (CacheKey.system, LmcacheKey.system, ObjectKey.system) == ("kvbench", "lmcache", "lmcache-mp")
