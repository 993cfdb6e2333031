"""Anonymous traces (B12): nothing that names or says anything is left, and every hit is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.errors import ConfigError, OutputError, TraceError
from kvbench.plugins import load_registry
from kvbench.trace import IdKey, TraceFacts, anonymize_trace, open_trace, read_key
from kvbench.trace.schema import COLUMN_BY_NAME

KEY = IdKey(bytes(range(32)))
OTHER_KEY = IdKey(bytes(range(1, 33)))
BLOCK = 4


def trace(facts: TraceFacts, **columns: list) -> pa.Table:
    arrays = {name: pa.array(values, COLUMN_BY_NAME[name].type) for name, values in columns.items()}
    return pa.table(arrays).replace_schema_metadata(facts.to_metadata())


def saved(table: pa.Table, path: Path) -> Path:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return path


def rows_of(path: Path) -> list[dict]:
    return pa.Table.from_batches(list(open_trace(path).batches())).to_pylist()


def of_tokens(prompts: list[list[int]], answers: list[list[int]], **more: list) -> pa.Table:
    return trace(
        TraceFacts(block_tokens=BLOCK),
        arrival_ns=[*range(len(prompts))],
        input_tokens=[len(prompt) for prompt in prompts],
        output_tokens=[len(answer) for answer in answers],
        token_ids=prompts,
        output_token_ids=answers,
        **more,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("anonymize")


PROMPT = st.lists(st.integers(0, 1), min_size=1, max_size=13)
"""So few different tokens that prompts share their beginnings often."""

ROW = st.tuples(PROMPT, st.lists(st.integers(0, 1), max_size=9), st.sampled_from(["", "a", "b"]))
POLICIES = ("lru", "fifo", "lfu", "sieve", "arc", "s3-fifo", "lirs")
BUILT_IN = load_registry(autoload=False)


def replayed(source: Path, **settings: Any) -> kvbench.ReplayResult:
    return kvbench.replay(source, registry=BUILT_IN, keep_requests=True, **settings)


def hits_of(result: kvbench.ReplayResult) -> dict[str, Any]:
    """What was hit and missed; the bounds are left out, for one of them needs dense ids."""
    summary: dict[str, Any] = result.summary
    blocks = {name: count for name, count in summary["blocks"].items() if name != "belady_hit"}
    return {"rates": summary["rates"], "misses": summary["misses"], "blocks": blocks}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(ROW, min_size=1, max_size=12),
    st.sampled_from(POLICIES),
    st.sampled_from([2, 5]),
    st.sampled_from([{}, {"tails": "keep"}, {"store_output": True}, {"shared_blocks": 1}]),
)
def test_B12_no_hit_of_a_replay_changes(folder, rows, policy, capacity, more):
    prompts, answers, tenants = (list(column) for column in zip(*rows, strict=True))
    source = saved(of_tokens(prompts, answers, tenant=tenants), folder / "t.arrow")
    anonymize_trace(source, folder / "a.arrow", key=KEY, force=True)
    before, after = (
        replayed(folder / name, policy=policy, capacity=capacity, **more) for name in ("t.arrow", "a.arrow")
    )
    assert before.requests.drop_columns(["tenant"]).equals(after.requests.drop_columns(["tenant"]))
    assert hits_of(before) == hits_of(after)


@settings(max_examples=40, deadline=None)
@given(st.lists(PROMPT, min_size=1, max_size=8))
def test_B12_two_rows_share_an_id_where_they_share_the_prompt_up_to_there(folder, prompts):
    """Partial last blocks included; the same key gives the same ids, another none of them."""
    source = saved(of_tokens(prompts, [[] for _ in prompts]), folder / "c.arrow")
    made = {}
    for name, key in {"one": KEY, "same": KEY, "other": OTHER_KEY}.items():
        anonymize_trace(source, folder / f"{name}.arrow", key=key, force=True)
        made[name] = [row["block_ids"] for row in rows_of(folder / f"{name}.arrow")]
    prefixes, ids = set(), set()
    for prompt, row in zip(prompts, made["one"], strict=True):
        ends = [min(end, len(prompt)) for end in range(BLOCK, len(prompt) + BLOCK, BLOCK)]
        prefixes.update((tuple(prompt[:end]), id) for end, id in zip(ends, row, strict=True))
        ids.update(row)
    assert len(prefixes) == len({prefix for prefix, _ in prefixes}) == len(ids)
    assert made["same"] == made["one"]
    assert not ids & {id for row in made["other"] for id in row}


@pytest.mark.parametrize("kind", ["prefix", "content"])
def test_block_ids_are_renamed_one_to_one(folder, kind):
    facts = TraceFacts(
        block_tokens=BLOCK, id_kind=kind, dense=kind == "prefix", source_name="secret", source_digest="x"
    )
    table = trace(
        facts,
        arrival_ns=[0, 1],
        input_tokens=[6, 9],
        block_ids=[[0, 1], [0, 2, 3]],
        original_ids=[[2**64 - 1, 1], [2**64 - 1, 2, 3]],
    )
    source = saved(table, folder / f"{kind}.arrow")
    report = anonymize_trace(source, folder / "ids.arrow", key=KEY, force=True)
    first, second = (row["block_ids"] for row in rows_of(folder / "ids.arrow"))
    assert first[0] == second[0]
    assert len({*first, *second}) == 4
    assert min(first) > 100
    assert open_trace(folder / "ids.arrow").facts == TraceFacts(block_tokens=BLOCK, id_kind=kind)
    assert report.dropped == ("original_ids",)


def test_a_real_trace_keeps_every_hit(mooncake, folder):
    anonymize_trace(mooncake("synthetic"), folder / "real.arrow", key=KEY, force=True)
    for capacity in (1_000, 10_000):
        before, after = (replayed(path, capacity=capacity) for path in (mooncake("synthetic"), folder / "real.arrow"))
        assert hits_of(before) == hits_of(after)


def test_names_and_texts_go_and_what_stays_is_said(folder):
    table = of_tokens(
        [[1] * 5, [1] * 9],
        [[2], [3]],
        session_id=["alice", "alice"],
        tenant=["acme", None],
        request_id=["alice", ""],
        model=["m", "m"],
        think_time_ns=[None, 2_700_000_000],
    )
    source = saved(table, folder / "named.arrow")
    report = anonymize_trace(
        source, folder / "plain.arrow", key=KEY, drop=["model"], coarsen_ns=1_000_000_000, force=True
    )
    first, second = rows_of(folder / "plain.arrow")
    assert first["session_id"] == second["session_id"] != first["request_id"]
    assert (second["tenant"], second["request_id"]) == (None, "")
    assert (first["think_time_ns"], second["think_time_ns"], second["arrival_ns"]) == (None, 2_000_000_000, 0)
    data = (folder / "plain.arrow").read_bytes()
    assert not any(name in data for name in (b"alice", b"acme", b"token_ids"))
    assert report.keyed == ("block_ids", "request_id", "session_id", "tenant", "output_block_ids")
    assert report.kept == ("arrival_ns", "input_tokens", "output_tokens", "think_time_ns")
    assert report.dropped == ("token_ids", "model", "output_token_ids")


def test_what_cannot_be_done_is_one_error_and_leaves_nothing(folder):
    table = of_tokens([[1]], [[2]])
    sizeless = saved(table.replace_schema_metadata(TraceFacts().to_metadata()), folder / "sizeless.arrow")
    source = saved(table, folder / "sized.arrow")
    with pytest.raises(TraceError, match="give the smallest that will be studied with --block-tokens"):
        anonymize_trace(sizeless, folder / "no.arrow", key=KEY)
    with pytest.raises(OutputError, match="is the trace that is read"):
        anonymize_trace(source, source, key=KEY, force=True)
    with pytest.raises(ConfigError, match="column 'input_tokens' cannot be dropped; these can: output_tokens, "):
        anonymize_trace(source, folder / "no.arrow", key=KEY, drop=["input_tokens"])
    with pytest.raises(ConfigError, match="there is no column model to drop; it has "):
        anonymize_trace(source, folder / "no.arrow", key=KEY, drop=["model"])
    with pytest.raises(ConfigError, match="a key must have 16 bytes or more, and this one has 5"):
        IdKey(b"short")
    with pytest.raises(ConfigError, match="missing: the key cannot be read: No such file"):
        read_key(folder / "missing")
    assert not (folder / "no.arrow").exists()
