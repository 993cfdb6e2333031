"""What makes two blocks the same key, and what sets them apart (semantics §2, §3)."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

import kvbench
from kvbench import ConfigError, Namespace, TraceError
from kvbench.replays.keyed import KeyedTrace
from kvbench.replays.parts import ChosenPart
from kvbench.specs import TokenDatabaseSpec
from kvbench.tokens import make_hash
from kvbench.tokens.chained import ChainedDatabase
from kvbench.tokens.ids import IdsDatabase
from kvbench.tokens.mixing import chain_ids, mix_ids
from kvbench.trace.schema import TraceFacts
from tests.hashing import mix64

U64 = st.integers(0, 2**64 - 1)
BLOCK = 4
BUILTIN = kvbench.load_registry(autoload=False)


def batch(**columns):
    """One record batch at 4 tokens a block; lengths follow from the ids unless they are given."""
    name = "token_ids" if "token_ids" in columns else "block_ids"
    lengths = columns.pop("input_tokens", [len(row) * (BLOCK if name == "block_ids" else 1) for row in columns[name]])
    kind = pa.list_(pa.uint32() if name == "token_ids" else pa.uint64())
    fixed = {
        "arrival_ns": pa.array(range(len(lengths)), pa.int64()),
        "input_tokens": pa.array(lengths, pa.uint32()),
        name: pa.array(columns.pop(name), kind),
    }
    return pa.record_batch({**fixed, **{key: pa.array(values, pa.string()) for key, values in columns.items()}})


def keys_of(database, rows, tails="drop", facts=None, **params):
    if database is not IdsDatabase:
        params["hashing"] = make_hash(params.pop("algorithm", "blake3"), BUILTIN)
    made = database(facts or TraceFacts(block_tokens=BLOCK), frozenset(rows.schema.names), **params)
    found = made.keys(rows, keep_tails=tails == "keep")
    ends = found.offsets.tolist()
    return [found.keys[a:b].tolist() for a, b in pairwise(ends)], found.cacheable.tolist()


def hits(rows, tokens=None, **facts):
    """Prefix hits of each row with an infinite cache."""
    metadata = TraceFacts(**{"block_tokens": BLOCK, **facts}).to_metadata()
    table = pa.Table.from_batches([rows]).replace_schema_metadata(metadata)
    return kvbench.replay(table, keep_requests=True, tokens=tokens).requests["hit_blocks"].to_pylist()


def both(block_ids, **columns):
    """The same prompts as block ids and as tokens, to be told apart alike."""
    tokens = [[token for block in row for token in range(BLOCK * block, BLOCK * block + BLOCK)] for row in block_ids]
    return [batch(block_ids=block_ids, **columns), batch(token_ids=tokens, **columns)]


# -- chained -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [("blake3", lambda data: blake3(data).digest()), ("sha256", lambda data: hashlib.sha256(data).digest())],
)
def test_chained_keys_follow_the_documented_byte_layout(algorithm, digest):
    """Semantics §2.2."""
    tokens = [0, 1, 2**31, 2**32 - 1, 5, 6, 7, 8, 9]
    parent = blake3(b"kvbench namespace 1").digest()
    expected = []
    for part in (tokens[:4], tokens[4:8], tokens[8:]):
        parent = digest(parent + struct.pack(f"<{len(part)}I", *part))
        expected.append(int.from_bytes(parent[:8], "little"))
    rows = batch(token_ids=[tokens, tokens[:8]])
    assert keys_of(ChainedDatabase, rows, algorithm=algorithm) == ([expected, expected[:2]], [2, 2])
    assert keys_of(ChainedDatabase, rows, "keep", algorithm=algorithm) == ([expected, expected[:2]], [3, 2])


def test_the_root_of_a_namespace_follows_the_documented_byte_layout():
    def text(value):
        return b"s" + struct.pack("<I", len(value)) + value

    def pair(*values):
        return b"t" + struct.pack("<I", len(values)) + b"".join(values)

    version = pair(text(b"x"), b"i" + struct.pack("<q", 2))
    data = b"kvbench namespace 1" + pair(text(b"adapter"), version) + pair(text(b"model"), text(b"m"))
    assert Namespace(model="m", adapter=("x", 2)).root() == blake3(data).digest()


def test_chained_needs_a_block_size_and_a_known_algorithm():
    with pytest.raises(TraceError, match="block size"):
        ChainedDatabase(TraceFacts(), frozenset(), hashing=make_hash("blake3", BUILTIN))
    with pytest.raises(ConfigError, match=r"unknown hash algorithm 'md5'; known: blake3, .*sha256"):
        hits(batch(token_ids=[[1]]), tokens="chained,algorithm=md5")


# -- namespaces ----------------------------------------------------------------------------------

SPACES = [
    Namespace(),
    Namespace(model="m"),
    Namespace(model="mm"),
    Namespace(weights="m"),
    Namespace(kv_dtype="bf16"),
    Namespace(kv_dtype="fp8"),
    Namespace(parallel="tp4"),
    Namespace(parallel="tp8"),
    Namespace(parallel="tp8", rank=0),
    Namespace(parallel="tp8", rank=1),
    Namespace(adapter="x"),
    Namespace(adapter=("x", 1)),
    Namespace(adapter=("x", 2)),
    Namespace(adapter=("x", "1")),
    Namespace(salt="x"),
    Namespace(tags={"a": "x"}),
    Namespace(tags={"a": "y"}),
    Namespace(tags={"ax": "y"}),
    Namespace(tags={"salt": "x"}),
    Namespace(model="ab", weights="c"),
    Namespace(model="a", weights="bc"),
]


def test_namespaces_that_differ_anywhere_have_different_roots():
    """Semantics §2.1: dtype, weights, layout, adapter with version, salt, tags."""
    assert len({space.root() for space in SPACES}) == len(SPACES)


def test_the_order_of_tags_does_not_matter_and_empty_is_absent():
    assert Namespace(tags={"a": "1", "b": "2"}).root() == Namespace(tags={"b": "2", "a": "1"}).root()
    assert Namespace(model="", adapter="", tags={"a": ""}).root() == Namespace().root()
    assert Namespace(tags={"a": ""}).is_empty()


@pytest.mark.parametrize("column", ["model", "adapter", "tenant"])
def test_rows_of_different_namespaces_never_hit_each_other_and_repeats_hit_in_full(column):
    values = ["a", "b", None, "a", "b", "", None]
    for rows in both([[1, 2]] * 7, **{column: values}):
        assert hits(rows) == [0, 0, 0, 2, 2, 2, 2]


def test_columns_of_a_namespace_are_not_run_together():
    for rows in both([[1, 2]] * 4, model=["ab", "a", "", "b"], adapter=["c", "bc", "b", ""]):
        assert hits(rows) == [0, 0, 0, 0]


def test_a_namespace_column_without_values_changes_no_key():
    plain, spaced = batch(block_ids=[[7, 8]]), batch(block_ids=[[7, 8]], model=[None], tenant=[""])
    assert keys_of(IdsDatabase, plain) == keys_of(IdsDatabase, spaced) == ([[7, 8]], [2])


# -- ids -----------------------------------------------------------------------------------------


def test_prefix_ids_are_the_keys_over_all_64_bits():
    """Semantics §2.3."""
    ids = [0, 1, 2**63, 2**64 - 1, 2**32]
    assert keys_of(IdsDatabase, batch(block_ids=[ids, []], input_tokens=[20, 1])) == ([ids, []], [5, 0])


@given(st.lists(U64, unique=True, max_size=50), U64)
def test_mixing_with_a_namespace_never_merges_ids(ids, root):
    keys = np.zeros(len(ids), np.uint64)
    mix_ids(np.array(ids, np.uint64), np.array([0, len(ids)]), np.array([root], np.uint64), keys)
    assert len(set(keys.tolist())) == len(ids)
    assert keys.tolist() == ([mix64(key ^ root) for key in ids] if root else ids)


@given(st.lists(st.lists(U64, max_size=6), max_size=6), U64)
def test_content_ids_are_chained_as_documented(rows, root):
    flat = np.array([key for row in rows for key in row], np.uint64)
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    keys = np.zeros_like(flat)
    chain_ids(flat, offsets, np.full(len(rows), root, np.uint64), keys)
    expected = []
    for row in rows:
        key = mix64(root ^ 0x9E3779B9)
        for each in row:
            key = mix64((key + mix64(each ^ 0x9E3779B9)) % 2**64)
            expected.append(key)
    assert keys.tolist() == expected


@pytest.mark.parametrize("rows", [[[1, 2, 9], [3, 4, 9]], [[10, 20], [11, 20]]])
def test_equal_content_under_other_parents_is_another_block(rows):
    assert hits(batch(block_ids=rows), id_kind="content") == [0, 0]
    assert hits(batch(block_ids=[rows[0], [*rows[0], 5]]), id_kind="content") == [0, len(rows[0])]


@pytest.mark.parametrize("kind", ["prefix", "content"])
@pytest.mark.parametrize(("scope", "expected"), [("session", [0, 0, 2, 2]), ("global", [0, 2, 2, 2])])
def test_the_scope_of_ids_says_whether_sessions_share(kind, scope, expected):
    rows = batch(block_ids=[[1, 2]] * 4, session_id=["a", "b", "a", "b"])
    assert hits(rows, id_scope=scope, id_kind=kind) == expected


def test_a_row_without_a_session_is_a_session_of_its_own():
    rows = batch(block_ids=[[1, 2]] * 6, session_id=["a", None, "", None, "a", ""])
    assert hits(rows, id_scope="session") == [0, 0, 0, 0, 2, 2]


def test_keys_of_rows_without_a_session_are_the_same_in_each_pass_and_cut():
    rows = batch(block_ids=[[1]] * 5, session_id=[None, "a", None, None, "a"], tenant=["b", "b", "a", "b", "a"])
    facts = TraceFacts(block_tokens=BLOCK, id_scope="session")
    database = IdsDatabase(facts, frozenset(rows.schema.names))
    cut = [database.keys(rows.slice(row, 1), keep_tails=False).keys[0] for row in range(5)]
    assert [[key] for key in cut] == keys_of(IdsDatabase, rows, facts=facts)[0]
    trace = kvbench.open_trace(pa.table(rows).replace_schema_metadata(facts.to_metadata()))
    keyed = KeyedTrace(trace, ChosenPart(TokenDatabaseSpec("ids", IdsDatabase, ""), {}), keep_tails=False)
    assert [[item.keys.keys.tolist() for item in keyed.batches()] for _ in range(2)] == [[cut], [cut]]


def test_namespaces_of_batches_before_the_last_are_not_kept():
    rows = batch(block_ids=[[1]] * 3000, session_id=[f"s{row}" for row in range(3000)])
    database = IdsDatabase(TraceFacts(block_tokens=BLOCK, id_scope="session"), frozenset(rows.schema.names))
    for start in range(0, 3000, 100):
        database.keys(rows.slice(start, 100), keep_tails=False)
    assert len(database._roots) == 100


def test_many_values_in_every_column_of_a_namespace_are_told_apart():
    """As many combinations as would not fit in 64 bits, were they numbered at once."""
    count = 60_000
    names = pa.array([f"n{row}" for row in range(count)])
    columns = dict.fromkeys(("model", "adapter", "tenant", "session_id"), names)
    rows = pa.record_batch({"block_ids": pa.array([[1]] * count, pa.list_(pa.uint64())), **columns})
    database = IdsDatabase(TraceFacts(id_scope="session"), frozenset(rows.schema.names))
    roots, which = database.namespace_rows(rows, by_session=True)
    assert len(set(roots)) == count
    assert sorted(which.tolist()) == list(range(count))
    tags = {"session_id": "n7"}
    assert roots[which[7]] == Namespace(model="n7", adapter="n7", salt="n7", tags=tags).root()


def test_what_a_database_lacks_is_told_with_the_name_of_the_trace(tmp_path):
    tokens = batch(token_ids=[[1, 2, 3]])
    pq.write_table(pa.table(tokens), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"t\.parquet: the file does not say its block size, .* --block-tokens"):
        kvbench.replay(tmp_path / "t.parquet")
    pq.write_table(pa.table(batch(block_ids=[[1]])), tmp_path / "u.parquet")
    with pytest.raises(TraceError, match=r"u\.parquet: ids of scope session need a column session_id"):
        kvbench.replay(tmp_path / "u.parquet", id_scope="session", block_tokens=BLOCK)


def test_session_scope_without_sessions_is_refused():
    with pytest.raises(TraceError, match="need a column session_id"):
        IdsDatabase(TraceFacts(id_scope="session"), frozenset({"block_ids"}))


def test_only_ids_that_are_keys_as_they_stand_count_as_dense():
    facts = TraceFacts(block_tokens=4, dense=True)
    assert IdsDatabase(facts, frozenset({"block_ids"})).dense
    assert not IdsDatabase(facts, frozenset({"block_ids", "model"})).dense
    assert not IdsDatabase(dataclasses.replace(facts, id_kind="content"), frozenset({"block_ids"})).dense
    columns = frozenset({"block_ids", "session_id"})
    assert not IdsDatabase(dataclasses.replace(facts, id_scope="session"), columns).dense


@pytest.mark.parametrize(("tails", "cacheable"), [("drop", [2, 2, 0]), ("keep", [2, 3, 1])])
def test_a_partial_last_block_is_cacheable_only_where_tails_are_kept(tails, cacheable):
    """Semantics §3.3: the key is there either way."""
    lengths = [8, 9, 3]
    by_id = batch(block_ids=[[1, 2], [1, 2, 3], [4]], input_tokens=lengths)
    by_token = batch(token_ids=[list(range(length)) for length in lengths])
    for database, rows in ((IdsDatabase, by_id), (ChainedDatabase, by_token)):
        keys, counts = keys_of(database, rows, tails)
        assert [len(row) for row in keys] == [2, 3, 1]
        assert counts == cacheable


def test_floor_traces_have_ids_of_full_blocks_only():
    facts = TraceFacts(block_tokens=BLOCK, tail_rule="floor")
    rows = batch(block_ids=[[1, 2], []], input_tokens=[9, 3])
    assert keys_of(IdsDatabase, rows, facts=facts) == ([[1, 2], []], [2, 0])
