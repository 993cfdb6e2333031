"""Every workload: a valid trace, the same for a seed, with the reuse that its formula expects."""

from __future__ import annotations

import math
from itertools import pairwise, product
from statistics import fmean, stdev

import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.plugins import load_registry
from kvbench.specs import WorkloadSpec
from kvbench.trace import TraceWriter, open_trace
from kvbench.trace.synth.agent import make_agent

REGISTRY = load_registry(autoload=False)
SMALL = {
    "agent": {"sessions": 8, "system_tokens": 300, "subagent_system_tokens": 200, "subagent_share": 0.3},
    "chat": {"sessions": 40, "system_tokens": 130},
    "docqa": {"num_documents": 5, "document_tokens": 1000, "order": "random"},
    "loop": {"requests": 50, "prompts": 7, "prompt_tokens": 300},
    "rag": {"requests": 60, "document_tokens": 200, "num_documents": 4, "docs_per_request": 2, "system_tokens": 90},
    "scan": {"requests": 200, "prompt_tokens": 300},
    "tenants": {"requests": 200, "prompt_tokens": 300, "shared_tokens": 100},
    "zipf": {"requests": 200, "prompts": 50, "prompt_tokens": 300},
}
EXACT = ("docqa", "loop")
"""What hits in these is the same for every seed."""


def made(name: str, seed: int = 1, **params):
    spec = REGISTRY.get(WorkloadSpec, name)
    return spec.load()(seed, **spec.parse_params({**SMALL[name], **params}))


def table_of(workload) -> pa.Table:
    table = pa.Table.from_batches(list(workload.batches()), workload.schema)
    return table.replace_schema_metadata(workload.facts.to_metadata())


def hit_tokens(table: pa.Table, **settings) -> int:
    result = kvbench.replay(table, **settings)
    return round(result.rates["token"] * result.summary["tokens"]["input"])


def hit_and_input(workload) -> tuple[int, int]:
    table = table_of(workload)
    return hit_tokens(table), sum(table["input_tokens"].to_pylist())


def test_every_workload_that_ships_is_tested_here():
    assert sorted(SMALL) == sorted(REGISTRY.names(WorkloadSpec))


@pytest.mark.parametrize(("name", "ids"), [*product(SMALL, ["block", "token"])])
def test_a_workload_keeps_the_rules_and_is_the_same_for_a_seed(tmp_path, name, ids):
    workload = made(name, ids=ids)
    with TraceWriter(tmp_path / "t.arrow", workload.schema, workload.facts) as writer:
        for batch in workload.batches():
            writer.write(batch)
    trace = open_trace(tmp_path / "t.arrow")
    rows = pa.Table.from_batches(list(trace.batches()))
    assert trace.facts == workload.facts
    assert rows.equals(table_of(made(name, ids=ids)).replace_schema_metadata(None))
    if name != "loop":
        assert not rows.drop_columns("arrival_ns").equals(
            table_of(made(name, seed=2, ids=ids)).drop_columns("arrival_ns")
        )


@pytest.mark.parametrize("name", SMALL)
def test_token_ids_are_shared_as_block_ids_are(name):
    assert hit_and_input(made(name)) == hit_and_input(made(name, ids="token"))


@pytest.mark.parametrize(("name", "block_tokens"), [*product(SMALL, [1, 16])])
def test_reuse_is_what_the_formula_expects(name, block_tokens):
    """Within four standard errors over seeds. Hits less the expected share of what is asked have no bias."""
    runs = [made(name, seed, block_tokens=block_tokens) for seed in range(8)]
    expected = runs[0].expected_token_rate
    assert 0 < expected < 1
    found = [hit_and_input(run) for run in runs]
    errors = [hit - expected * asked for hit, asked in found]
    if name in EXACT:
        assert len({hit for hit, _ in found}) == 1
    assert abs(fmean(errors)) <= 4 * stdev(errors) / math.sqrt(len(errors)) + 1e-6 * found[0][1]


@pytest.mark.parametrize(("name", "hit"), [("docqa", 5 * 3 * 1088 + 4 * 64), ("loop", 43 * 256)])
def test_exact_reuse_is_exact(name, hit):
    workload = made(name)
    assert hit_and_input(workload)[0] == hit
    if name == "loop":
        assert workload.expected_token_rate == hit / (50 * 300)


def test_shuffled_documents_are_expected_to_hit_less():
    runs = [made("rag", seed, order="shuffled") for seed in range(8)]
    expected = runs[0].expected_token_rate
    errors = [hit - expected * asked for hit, asked in map(hit_and_input, runs)]
    assert abs(fmean(errors)) <= 4 * stdev(errors) / math.sqrt(len(errors))
    assert expected < made("rag").expected_token_rate


def test_an_lru_cache_below_the_loop_hits_nothing():
    table = table_of(made("loop"))
    assert hit_tokens(table, capacity=6 * 4) == 0
    assert hit_tokens(table, capacity=7 * 4) == 43 * 256


def test_tenants_share_their_system_prompt_if_they_may():
    table = table_of(made("tenants", shared_tokens=128))
    apart, together = (hit_tokens(table, shared_blocks=blocks) for blocks in (0, 2))
    assert together - apart == 3 * 128


def end_of(row: dict) -> int:
    return row["arrival_ns"] + row["output_tokens"] * 20_000_000


def test_a_sub_agent_starts_after_the_answer_and_the_next_step_after_its_report():
    rows = table_of(made("agent")).to_pylist()
    talks: dict[str, list[dict]] = {}
    for row in rows:
        talks.setdefault(row["session_id"], []).append(row)
    end = {name: end_of(talk[-1]) for name, talk in talks.items()}
    subs = [name for name in talks if "." in name]
    assert len(subs) > 5
    for name in subs:
        assert {row["type"] for row in talks[name]} == {"subagent"}
        parent = talks[name.split(".")[0]]
        starts = [end_of(row) for row in parent]
        assert talks[name][0]["arrival_ns"] in starts
        assert end[name] in [row["arrival_ns"] for row in parent]
    for talk in talks.values():
        assert [row["turn"] for row in talk] == list(range(len(talk)))
        for before, after in pairwise(talk):
            assert (
                after["arrival_ns"] - after["think_time_ns"]
                == before["arrival_ns"] + before["output_tokens"] * 20_000_000
            )
            assert after["input_tokens"] > before["input_tokens"] + before["output_tokens"]


def gaps_of(name: str, **params) -> list[int]:
    arrivals = table_of(made(name, **params))["arrival_ns"].to_pylist()
    return [after - before for before, after in pairwise(arrivals)]


@pytest.mark.parametrize("cv", [0.5, 3.0])
def test_gamma_gaps_have_the_rate_and_the_variation_asked_for(cv):
    gaps = gaps_of("zipf", requests=4000, arrivals="gamma", cv=cv, rate=2.0, prompt_tokens=1)
    assert fmean(gaps) / 1e9 == pytest.approx(0.5, abs=4 * 0.5 * cv / math.sqrt(len(gaps)))
    assert stdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.2)


def test_uniform_gaps_are_alike():
    assert set(gaps_of("loop", arrivals="uniform", rate=4.0)) == {250_000_000}


def test_arrivals_of_a_trace_are_taken_over_and_over_and_stretched_to_a_rate(tmp_path):
    source = str(tmp_path / "source.arrow")
    workload = made("loop", requests=4, arrivals="uniform", rate=1.0)
    with TraceWriter(source, workload.schema, workload.facts) as writer:
        for batch in workload.batches():
            writer.write(batch)
    assert gaps_of("loop", requests=10, arrivals=f"trace:{source}") == [10**9] * 9
    assert gaps_of("chat", arrivals=f"trace:{source}", turns=1.0, rate=0.25) == [4 * 10**9] * 39


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("loop", {"arrivals": "sometimes"}, "not one of poisson, gamma, uniform, trace:FILE"),
        ("rag", {"arrivals": "gamma"}, "needs cv"),
        ("chat", {"cv": 2.0}, "cv has no effect with arrivals = poisson"),
        ("agent", {"subagent_share": 2}, "parameter subagent_share = 2 is above 1"),
        ("docqa", {"order": "sideways"}, "not one of tile, interleave, random"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(name, params, message):
    with pytest.raises(ConfigError, match=message):
        made(name, **params)


def test_prompts_and_times_that_a_trace_cannot_hold_are_refused():
    with pytest.raises(ConfigError, match="above 4,294,967,295; lower"):
        list(make_agent(1, task_tokens=1e12, block_tokens=2**30).batches())
    with pytest.raises(ConfigError, match="292 years"):
        list(make_agent(1, tool_s=1e300).batches())
    with pytest.raises(ConfigError, match="subagent_share = 2 is above 1"):
        make_agent(1, subagent_share=2)
