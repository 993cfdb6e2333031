"""What ``trace inspect`` finds in small traces, where it can be counted by hand or by brute force."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.errors import ConfigError
from kvbench.plugins import load_registry
from kvbench.results.inspect import inspect_trace
from kvbench.results.overtime import windows
from kvbench.trace import TraceFacts, open_trace

REGISTRY = load_registry(autoload=False)


def inspected(table: pa.Table, block_tokens: int = 10, block_sizes=None) -> dict:
    return inspect_trace(open_trace(table, block_tokens=block_tokens), REGISTRY, block_sizes=block_sizes)


def of_tokens(rows: list[list[int]]) -> pa.Table:
    return pa.table(
        {
            "arrival_ns": list(range(len(rows))),
            "input_tokens": pa.array([len(row) for row in rows], pa.uint32()),
            "token_ids": pa.array(rows, pa.list_(pa.uint32())),
        }
    )


def of_lengths(lengths: list[int], **columns) -> pa.Table:
    return pa.table(
        {"arrival_ns": list(range(len(lengths))), "input_tokens": pa.array(lengths, pa.uint32()), **columns}
    )


def shared_by_two(tokens: int, length: int = 1000) -> pa.Table:
    prompts = np.arange(2 * length).reshape(2, length)
    prompts[1, :tokens] = prompts[0, :tokens]
    return of_tokens(prompts.tolist())


def test_c05_a_prefix_shorter_than_a_block_is_seen_as_such():
    small, large = inspected(shared_by_two(240), block_sizes=[16, 784])["block_sizes"]
    assert (small["hit_tokens"], small["shorter_than_block_requests"]) == (240, 0)
    assert (large["hit_tokens"], large["shorter_than_block_requests"]) == (0, 1)


def test_c06_larger_blocks_round_a_prefix_down():
    found = inspected(shared_by_two(50), block_sizes=[1, 16, 64])["block_sizes"]
    assert [row["hit_tokens"] for row in found] == [50, 48, 0]


prompts = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=24), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(prompts)
def test_a_block_size_hits_what_a_replay_with_it_does(rows):
    table = of_tokens(rows)
    for found in inspected(table, block_sizes=[2, 4, 6])["block_sizes"]:
        replayed = kvbench.replay(table, block_tokens=found["block_tokens"], registry=REGISTRY)
        assert found["token_rate"] == replayed.rates["token"]


def test_block_ids_tell_of_multiples_of_their_size_only():
    table = of_lengths([40, 40], block_ids=pa.array([[1, 2, 3, 4], [1, 2, 3, 9]], pa.list_(pa.uint64())))
    assert [row["hit_tokens"] for row in inspected(table, block_sizes=[10, 20, 40])["block_sizes"]] == [30, 20, 0]
    with pytest.raises(ConfigError, match="--block-sizes 15: ids of table stand for 10 tokens"):
        inspected(table, block_sizes=[15])
    with pytest.raises(ConfigError, match="no effect on table, which has no ids"):
        inspected(of_lengths([5]), block_sizes=[16])


def test_a19_rows_at_the_most_frequent_extreme_are_reported():
    report = inspected(of_lengths([5] * 40).set_column(0, "arrival_ns", pa.array([0] * 30 + list(range(5, 55, 5)))))
    assert report["arrivals"]["extreme"] == {"which": "first", "arrival_ns": 0, "rows": 30, "share": 0.75}
    gap = report["arrivals"]["gap_ns"]
    assert (gap["min"], gap["p50"], gap["max"], gap["at_min_share"]) == (0, 0, 5, 29 / 39)
    assert any("30 of 40 rows (75%) arrive at the first time of all, row 1 first" in each for each in report["remarks"])


def test_hits_are_told_apart_by_the_session_that_used_the_block_last():
    table = of_lengths(
        [20, 20, 20, 20],
        block_ids=pa.array([[1, 2], [1, 3], [1, 2], [1, 2]], pa.list_(pa.uint64())),
        session_id=["a", "b", "a", None],
    )
    sessions = inspected(table)["sessions"]
    assert sessions["hit_blocks"] == {
        "same_session": 1,
        "other_session": 4,
        "same_session_share": 0.2,
        "other_session_share": 0.8,
    }
    assert (sessions["sessions"], sessions["rows_without"], sessions["turns_max"]) == (2, 1, 2)


def test_tenants_are_reported_by_their_rows():
    table = of_lengths(
        [20, 20, 20],
        block_ids=pa.array([[1, 2], [1, 2], [1, 2]], pa.list_(pa.uint64())),
        tenant=["a", "b", "b"],
    )
    top = inspected(table)["tenants"]["top"]
    assert [(row["tenant"], row["rows"], row["hit_blocks"], row["token_rate"]) for row in top] == [
        ("b", 2, 2, 0.5),
        ("a", 1, 0, 0.0),
    ]


def test_prompts_that_shrink_or_grow_ever_faster_are_remarked_on():
    """What deltas look like, and (A28) whole prompts that were added up as if they were deltas."""
    talk = [100, 40, 60, 50, 30, 70, 20]
    cumulative = np.cumsum(talk)
    inflated = np.cumsum(cumulative)
    for lengths, said in (
        (talk, "shorter prompt than the turn before, row 2"),
        (cumulative, ""),
        (inflated, "added up"),
    ):
        sessions = [f"s{at}" for at in range(8) for _ in talk]
        report = inspected(of_lengths(list(lengths) * 8, session_id=sessions))
        remarks = [each for each in report["remarks"] if "prompt" in each]
        assert [said in each for each in remarks] == ([True] if said else [])


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 4)), min_size=2, max_size=30))
def test_windows_count_new_and_live_blocks_as_brute_force_does(uses):
    uses = sorted(uses)
    arrivals = np.array([time for time, _ in uses])
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for time, block in uses:
        first.setdefault(block, time)
        last[block] = time
    found = windows(arrivals, np.ones_like(arrivals), np.array([*first.values()]), np.array([*last.values()]))
    if arrivals[0] == arrivals[-1]:
        assert found == []
        return
    assert sum(row["requests"] for row in found) == len(uses)
    assert sum(row["new_blocks"] for row in found) == len(first)
    for row, after in zip(found, [*(row["from_ns"] for row in found[1:]), None], strict=True):
        live = 0 if after is None else sum(first[block] < after <= last[block] for block in first)
        assert row["live_blocks"] == live


def test_a_sample_says_which_share_of_a_capacity_it_needs():
    table = of_lengths([5]).replace_schema_metadata(TraceFacts(capacity_factor=0.25).to_metadata())
    assert inspected(table)["trace"]["capacity_factor"] == 0.25
