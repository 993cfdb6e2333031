"""``trace make --like``: what is made is a trace, shares as the given one does, and has nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from kvbench.cli.root import root
from kvbench.errors import ConfigError
from kvbench.plugins import load_registry
from kvbench.results.like.compare import make_like
from kvbench.trace import open_trace
from kvbench.trace.schema import TraceFacts
from kvbench.trace.synth.agent import make_agent
from kvbench.trace.synth.chat import make_chat
from kvbench.trace.synth.picks import make_zipf
from kvbench.trace.synth.rag import make_rag

REGISTRY = load_registry(autoload=False)


def table_of(workload) -> pa.Table:
    table = pa.Table.from_batches(list(workload.batches()))
    return table.replace_schema_metadata(workload.facts.to_metadata())


def like(table: pa.Table, output: Path, **settings) -> tuple[dict, pa.Table]:
    report = make_like(open_trace(table), output, REGISTRY, force=True, **settings)
    return report, pa.Table.from_batches(list(open_trace(output).batches()))


def test_more_of_a_chat_has_its_rate_lengths_turns_and_reuse(tmp_path):
    report, made = like(table_of(make_chat(1, sessions=400)), tmp_path / "o.arrow", rows=3000)
    given, found = report["given"], report["made"]
    assert found["rows"] == len(made) == 3000
    assert found["requests_per_s"] == pytest.approx(given["requests_per_s"], rel=0.2)
    assert found["input_tokens"]["mean"] == pytest.approx(given["input_tokens"]["mean"], rel=0.05)
    assert found["output_tokens"]["p90"] == pytest.approx(given["output_tokens"]["p90"], rel=0.1)
    assert found["later_turns_share"] == pytest.approx(given["later_turns_share"], abs=0.03)
    assert found["infinite_rates"]["token"] == pytest.approx(given["infinite_rates"]["token"], abs=0.02)
    assert found["prefixes"][0]["different_share"] * 3000 == given["prefixes"][0]["different_share"] * given["rows"]
    one, other = given["lru_token_rates"], found["lru_token_rates"]
    assert [row["capacity_blocks"] for row in one] == [row["capacity_blocks"] for row in other]
    for row, same in zip(one, other, strict=True):
        assert same["token_rate"] == pytest.approx(row["token_rate"], abs=0.05)


@pytest.mark.parametrize(
    ("workload", "points"), [(make_chat(1, sessions=400), 3), (make_agent(1), 6), (make_rag(1), 6), (make_zipf(1), 3)]
)
def test_the_curve_of_lru_is_met_at_three_capacities(tmp_path, workload, points):
    """Locality is met, too, not only what is shared: at 1, 10 and 50 % of all blocks; a point is a hundredth."""
    report, _ = like(table_of(workload), tmp_path / "o.arrow")
    for row, same in zip(report["given"]["lru_token_rates"], report["made"]["lru_token_rates"], strict=True):
        assert same["token_rate"] == pytest.approx(row["token_rate"], abs=points / 100)


def test_conversations_without_session_ids_are_told_by_what_goes_on(tmp_path):
    """Without its session ids a trace of chats is met as well as with them."""
    table = table_of(make_chat(1, sessions=400))
    table = table.drop_columns(["session_id", "turn", "think_time_ns"])
    report, _ = like(table, tmp_path / "o.arrow")
    assert report["given"]["later_turns_share"] is None
    for row, same in zip(report["given"]["lru_token_rates"], report["made"]["lru_token_rates"], strict=True):
        assert same["token_rate"] == pytest.approx(row["token_rate"], abs=0.03)


def test_the_conversation_trace_is_met_within_a_few_points(tmp_path, mooncake):
    report = make_like(open_trace(mooncake("conversation")), tmp_path / "o.arrow", REGISTRY)
    given, made = report["given"], report["made"]
    assert made["infinite_rates"]["token"] == pytest.approx(given["infinite_rates"]["token"], abs=0.02)
    for row, same in zip(given["lru_token_rates"], made["lru_token_rates"], strict=True):
        assert same["token_rate"] == pytest.approx(row["token_rate"], abs=0.02)
    for row, same in zip(given["prefixes"], made["prefixes"], strict=False):
        assert same["different_share"] == pytest.approx(row["different_share"], abs=0.03)


@pytest.mark.parametrize("make", [make_chat, make_agent, make_zipf])
def test_what_is_made_is_the_same_for_a_seed(tmp_path, make):
    table = table_of(make(1))
    first, second, other = (like(table, tmp_path / "o.arrow", rows=200, seed=seed)[1] for seed in (1, 1, 2))
    assert first.equals(second)
    assert not first.equals(other)


def test_equal_prompts_are_made_equal_to_the_last_token(tmp_path):
    report, made = like(table_of(make_zipf(1, prompts=30, prompt_tokens=1000)), tmp_path / "o.arrow")
    assert set(made["input_tokens"].to_pylist()) == {1000}
    assert report["made"]["infinite_rates"]["block"] == pytest.approx(0.97, abs=0.02)


def test_bursts_come_together_and_files_without_ids_stay_without(tmp_path):
    table = pa.table(
        {"arrival_ns": [0, 0, 0, 10**9, 10**9, 10**9], "input_tokens": pa.array([5, 6, 7] * 2, pa.uint32())}
    )
    report, made = like(table, tmp_path / "o.arrow", rows=30)
    assert report["made"]["rows_a_burst"] == 3
    assert made.schema.names == ["arrival_ns", "input_tokens", "request_id"]
    assert made["arrival_ns"].to_pylist() == [at // 3 * 10**9 for at in range(30)]


def test_blocks_without_ids_for_tails_stay_so(tmp_path):
    facts = TraceFacts(block_tokens=10, tail_rule="floor")
    table = pa.table(
        {
            "arrival_ns": [0, 1, 2],
            "input_tokens": pa.array([25, 38, 9], pa.uint32()),
            "block_ids": pa.array([[1, 2], [1, 2, 3], []], pa.list_(pa.uint64())),
        }
    ).replace_schema_metadata(facts.to_metadata())
    _, made = like(table, tmp_path / "o.arrow", rows=50)
    assert all(len(row["block_ids"]) == row["input_tokens"] // 10 for row in made.to_pylist())


def test_the_command_prints_both_side_by_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sample = Path(__file__).parents[2] / "traces" / "chat.arrow"

    def run(*words: str):
        return CliRunner().invoke(root, ["trace", "make", *words], obj=REGISTRY)

    printed = run("--like", str(sample), "-o", "more.arrow").output
    assert "token rate of an infinite cache" in printed
    assert "wrote more.arrow" in printed
    report = json.loads(run("--like", str(sample), "--rows", "50", "--json", "--force", "-o", "more.arrow").output)
    assert (report["given"]["rows"], report["made"]["rows"]) == (1952, 50)
    for words, message in (
        (("chat", "--like", "x"), "either a WORKLOAD or --like TRACE"),
        (("chat", "--rows", "5"), "--rows has no effect without --like"),
    ):
        error = run(*words, "-o", "x.arrow").exception
        assert isinstance(error, ConfigError)
        assert message in str(error)
