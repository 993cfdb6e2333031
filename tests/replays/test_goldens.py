"""Published and measured figures of real traces, to the last block."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.trace.schema import TraceFacts

TRACES = ("conversation", "synthetic")
CAPACITIES = (1_000, 3_000, 10_000, 30_000, 50_000, 100_000, 200_000)
LRU_COLUMN = {"tail-first": "two_phase_tail_first", "head-first": "two_phase_head_first", "access": "access_prefix"}

# FIFO and token-weighted LRU at these five capacities.
FIVE = (1_000, 10_000, 30_000, 50_000, 100_000)
FIFO_HITS = {
    "conversation": (12_559, 53_812, 87_152, 98_096, 103_651),
    "synthetic": (9_597, 48_633, 72_529, 77_953, 77_953),
}
LRU_HIT_TOKENS = {
    "conversation": (6_567_267, 31_174_981, 48_088_108, 52_347_371, 53_695_979),
    "synthetic": (5_142_055, 26_393_500, 38_895_096, 39_852_661, 39_852_661),
}
FULL_BLOCKS = {"conversation": (105_592, 276_491, 0.3819), "synthetic": (77_740, 117_888, 0.6594)}
INFINITE_HIT_TOKENS = {"conversation": 54_098_411, "synthetic": 39_852_661}
MEASURED_NAMES = {
    "block": "inf_block_prefix",
    "block_any": "inf_block_any",
    "token": "inf_token_prefix",
    "request_mean": "inf_mean_req_block",
    "request_mean_token": "inf_mean_req_token",
}


@cache
def read_json(path):
    return json.loads(path.read_text())


@pytest.fixture
def lru_hits(shared):
    return read_json(shared / "golden/lru_hits.json")


@pytest.fixture
def measured(shared):
    return read_json(shared / "traces/mooncake/measured.json")


@pytest.fixture(params=TRACES)
def name(request):
    return request.param


def spread_ids(table):
    """The trace with its dense ids replaced one to one by numbers all over 64 bits."""
    ids = table["block_ids"].combine_chunks()
    spread = (ids.values.to_numpy() + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    column = pa.ListArray.from_arrays(ids.offsets, pa.array(spread))
    at = table.schema.get_field_index("block_ids")
    facts = TraceFacts(block_tokens=512).to_metadata()
    return table.set_column(at, "block_ids", column).replace_schema_metadata(facts)


def hit_tokens(result):
    return sum(worker["hit_tokens"] for worker in result.summary["workers"]["each"])


@pytest.mark.parametrize("order", LRU_COLUMN)
@pytest.mark.parametrize("capacity", CAPACITIES)
def test_lru_hits_every_golden_count(mooncake, lru_hits, name, capacity, order):
    """Semantics §5.1."""
    golden = lru_hits[name]
    result = kvbench.replay(mooncake(name), capacity=capacity, order=order, tails="keep")
    blocks = result.summary["blocks"]
    assert blocks["hit"] == golden[str(capacity)][LRU_COLUMN[order]]
    assert blocks["asked"] == golden["accesses"]
    assert blocks["distinct"] == golden["unique"]
    assert blocks["infinite_hit"] == golden["accesses"] - golden["unique"]
    if order == "access":
        assert result.rates["block_any"] == golden[str(capacity)]["access_any"] / golden["accesses"]


@pytest.mark.parametrize("seen", ["exact", "off"])
def test_ids_need_not_be_dense_for_the_golden_counts(mooncake, lru_hits, name, seen):
    trace = spread_ids(pa.ipc.open_file(mooncake(name)).read_all())
    result = kvbench.replay(trace, capacity=10_000, tails="keep", seen=seen)
    assert result.summary["blocks"]["hit"] == lru_hits[name]["10000"]["two_phase_tail_first"]


@pytest.mark.parametrize("index", range(5), ids=[f"{capacity}" for capacity in FIVE])
def test_fifo_hits_every_reference_value(mooncake, measured, name, index):
    capacity = FIVE[index]
    result = kvbench.replay(mooncake(name), capacity=capacity, policy="fifo", order="access", tails="keep")
    assert round(result.rates["block_any"] * result.summary["blocks"]["asked"]) == FIFO_HITS[name][index]
    assert result.rates["block_any"] == measured[name]["caps"][str(capacity)]["fifo"]


@pytest.mark.parametrize("index", range(5), ids=[f"{capacity}" for capacity in FIVE])
def test_the_rates_of_a_bounded_lru_are_the_measured_ones(mooncake, measured, name, index):
    golden = measured[name]["caps"][str(FIVE[index])]
    result = kvbench.replay(mooncake(name), capacity=FIVE[index], order="head-first", tails="keep")
    assert hit_tokens(result) == LRU_HIT_TOKENS[name][index]
    assert result.rates["token"] == golden["lru_prefix_token"]
    assert result.rates["block"] == golden["lru_prefix_block"]
    assert result.rates["block_any"] == golden["lru_two_phase_any"]
    assert result.rates["request_mean"] == pytest.approx(golden["lru_prefix_mean_per_request"], rel=1e-12)


def test_an_infinite_cache_reaches_the_measured_bound_under_every_name(mooncake, measured, name):
    """Semantics §10.1; a bounded replay gives the same bound."""
    golden = measured[name]["stats"]
    infinite = kvbench.replay(mooncake(name), tails="keep")
    bounded = kvbench.replay(mooncake(name), capacity=1_000, tails="keep")
    assert infinite.summary["infinite_rates"] == bounded.summary["infinite_rates"]
    for rates in (infinite.rates, infinite.summary["infinite_rates"]):
        for rate, golden_name in MEASURED_NAMES.items():
            assert rates[rate] == pytest.approx(golden[golden_name], rel=1e-12), rate
    assert hit_tokens(infinite) == INFINITE_HIT_TOKENS[name]


def test_rows_and_mean_lengths_are_those_of_the_trace(mooncake, measured, name):
    golden = measured[name]["stats"]
    summary = kvbench.replay(mooncake(name)).summary
    rows = summary["requests"]["done"]
    assert (rows, summary["requests"]["rejected"]) == (golden["requests"], 0)
    assert summary["tokens"]["input"] / rows == golden["avg_in"]
    assert summary["tokens"]["output"] / rows == golden["avg_out"]


@pytest.mark.parametrize("tails", ["drop", "keep"])
def test_the_full_block_rate_counts_full_blocks_only(mooncake, name, tails):
    """Semantics §3.3, §10.1; keeping tails changes other rates, not this one."""
    hits, full, rounded = FULL_BLOCKS[name]
    result = kvbench.replay(mooncake(name), tails=tails)
    assert result.summary["blocks"]["full"] == full
    assert result.rates["full_block"] == hits / full
    assert round(result.rates["full_block"], 4) == rounded
    if tails == "drop":
        assert result.summary["blocks"]["hit"] == hits
        assert result.summary["misses"]["partial"] == result.summary["blocks"]["asked"] - full


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [50_000, 100_000, 1_000_000])
@pytest.mark.parametrize("order", ["tail-first", "head-first"])
def test_weka_hits_every_golden_count(weka, lru_hits, capacity, order):
    golden = lru_hits["weka_merged"]
    summary = kvbench.replay(weka, capacity=capacity, order=order).summary
    blocks = summary["blocks"]
    assert summary["requests"]["done"] == golden["rows"]
    assert (blocks["asked"], blocks["distinct"]) == (golden["accesses"], golden["unique"])
    assert blocks["hit"] == golden[str(capacity)][LRU_COLUMN[order]]
    assert blocks["infinite_hit"] == golden["infinite_hits"]


@pytest.mark.slow
def test_weka_with_an_infinite_cache_misses_only_first_uses(weka, lru_hits):
    golden = lru_hits["weka_merged"]
    summary = kvbench.replay(weka).summary
    assert summary["blocks"]["hit"] == golden["infinite_hits"]
    assert summary["misses"]["first_seen"] == golden["unique"]
