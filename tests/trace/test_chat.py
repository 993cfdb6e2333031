"""The chat workload: the same for the same seed, a valid trace, and shaped as it says."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from kvbench.errors import ConfigError
from kvbench.plugins import load_registry
from kvbench.specs import WorkloadSpec
from kvbench.trace import TraceWriter, open_trace
from kvbench.trace.synth.chat import make_chat

SMALL = {"sessions": 40, "system_tokens": 130}


def table_of(seed=1, **params) -> pa.Table:
    return pa.Table.from_batches(list(make_chat(seed, **{**SMALL, **params}).batches()))


def common_prefix(one: list, two: list) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


def digest_in_a_new_process(hash_seed: str, folder: Path) -> str:
    code = (
        "from kvbench.trace import open_trace; from kvbench.trace.synth.chat import make_chat; import pyarrow as pa\n"
        "w = make_chat(3, sessions=20); t = open_trace(pa.Table.from_batches(list(w.batches())))\n"
        "list(open_trace(pa.Table.from_batches(list(w.batches())), block_tokens=64).batches())\n"
        "t = open_trace(pa.Table.from_batches(list(w.batches())), block_tokens=64); list(t.batches()); print(t.digest)"
    )
    env = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(
        # Elsewhere than here, where a package of the same name may lie that is not the one under test.
        [sys.executable, "-c", code],
        env=env,
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


@pytest.mark.parametrize("ids", ["block", "token"])
def test_a_seed_makes_the_same_trace_again_and_another_seed_another(ids):
    assert table_of(ids=ids).equals(table_of(ids=ids))
    assert not table_of(ids=ids).equals(table_of(seed=2, ids=ids))


def test_a_seed_makes_the_same_trace_in_another_process(tmp_path):
    assert digest_in_a_new_process("1", tmp_path) == digest_in_a_new_process("2", tmp_path)


@pytest.mark.parametrize("ids", ["block", "token"])
@pytest.mark.parametrize(
    "params", [{}, {"system_tokens": 0}, {"system_tokens": 128}, {"block_tokens": 1}, {"think_s": 0}]
)
def test_the_trace_keeps_the_rules_of_the_schema(tmp_path, ids, params):
    workload = make_chat(1, **{**SMALL, "ids": ids, **params})
    with TraceWriter(tmp_path / "t.arrow", workload.schema, workload.facts) as writer:
        for batch in workload.batches():
            writer.write(batch)
    trace = open_trace(tmp_path / "t.arrow")
    rows = sum(batch.num_rows for batch in trace.batches())
    assert rows == len(table_of(ids=ids, **params)) > 40
    assert trace.facts == workload.facts
    assert trace.facts.dense is (ids == "block")


def test_turns_of_a_session_go_on_from_each_other():
    sessions: dict[str, list[dict]] = {}
    for row in table_of().to_pylist():
        sessions.setdefault(row["session_id"], []).append(row)
    assert len(sessions) == 40
    for turns in sessions.values():
        assert [row["turn"] for row in turns] == list(range(len(turns)))
        assert turns[0]["think_time_ns"] is None
        for before, after in pairwise(turns):
            context = before["input_tokens"] + before["output_tokens"]
            assert after["input_tokens"] > context
            assert after["arrival_ns"] == (
                before["arrival_ns"] + before["output_tokens"] * 20_000_000 + after["think_time_ns"]
            )
            assert common_prefix(before["block_ids"], after["block_ids"]) == before["input_tokens"] // 64


def test_sessions_share_their_system_prompt_and_nothing_else():
    first = [row["block_ids"] for row in table_of().to_pylist() if row["turn"] == 0]
    shared = {common_prefix(one, two) for index, one in enumerate(first) for two in first[:index]}
    assert shared == {0, 130 // 64}
    starts = [ids[0] for ids in first]
    assert 2 <= len(set(starts)) <= 4


def test_token_ids_are_shared_as_block_ids_are():
    blocks, tokens = table_of().to_pylist(), table_of(ids="token").to_pylist()
    assert [row["input_tokens"] for row in blocks] == [row["input_tokens"] for row in tokens]
    for one in range(0, len(blocks), 7):
        for two in range(0, one, 5):
            in_tokens = common_prefix(tokens[one]["token_ids"], tokens[two]["token_ids"])
            in_blocks = common_prefix(blocks[one]["block_ids"], blocks[two]["block_ids"])
            assert in_tokens // 64 == in_blocks
    assert max(max(row["token_ids"]) for row in tokens) < 32_000


def test_means_are_near_what_was_asked_for():
    rows = table_of(sessions=2000, system_tokens=0).to_pylist()
    turns = len(rows) / 2000
    assert turns == pytest.approx(5, rel=0.1)
    assert sum(row["output_tokens"] for row in rows) / len(rows) == pytest.approx(250, rel=0.05)
    users = [row["input_tokens"] for row in rows if row["turn"] == 0]
    assert sum(users) / len(users) == pytest.approx(120, rel=0.1)
    assert max(row["arrival_ns"] for row in rows if row["turn"] == 0) / 1e9 == pytest.approx(4000, rel=0.1)


def test_one_parameter_does_not_change_the_draws_of_the_others():
    few, many = (table_of(system_prompts=count)["output_tokens"].to_pylist() for count in (1, 4))
    assert few == many


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sessions": 0}, "sessions = 0 is below 1"),
        ({"turns": 0.5}, "turns = 0.5 is below 1"),
        ({"rate": 0}, "rate = 0 must be above 0"),
        ({"think_s": float("nan")}, "think_s = nan"),
        ({"turns": float("inf")}, "turns = inf must be a finite number"),
        ({"ids": "words"}, "ids = 'words' is not one of block, token"),
    ],
)
def test_parameters_out_of_range_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        make_chat(1, **params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rate": 1e-300}, "more than 292 years"),
        ({"think_s": 1e300}, "more than 292 years"),
        ({"think_s": 1e9, "turns": 1000}, "more than 292 years"),
        ({"user_tokens": 1e10}, "has a prompt of .* tokens, above 4,294,967,295; lower turns"),
    ],
)
def test_times_and_lengths_that_a_trace_cannot_hold_are_refused(params, message):
    with pytest.raises(ConfigError, match=message):
        list(make_chat(1, sessions=3, **params).batches())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("turns", "inf", "must be a finite number"),
        ("rate", "1e-300", "is below 1e-06"),
        ("think_s", "1e300", "is above 10,000,000"),
        ("user_tokens", "nan", "must be a finite number"),
        ("user_tokens", "1e8", "is above 1,000,000"),
        ("turns", "1e18", "is above 10,000"),
        ("sessions", "9" * 5000, "is not of type int"),
        ("block_tokens", str(2**32), "is above 4,294,967,295"),
    ],
)
def test_declared_parameters_are_finite_and_bounded(name, value, message):
    with pytest.raises(ConfigError, match=f"parameter {name} = .*{message}"):
        load_registry(autoload=False).get(WorkloadSpec, "chat").parse_params({name: value})
