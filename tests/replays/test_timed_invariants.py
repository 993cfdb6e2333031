"""What holds of every timed replay, whatever overlaps, is preempted, shared or recomputed (semantics §9.6, §13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clocked import GB, MS, ONE_GB_PER_S, column, seconds, serve, trace
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.results.requests import MISS_REASONS

CAPACITY = 12

# The chain that ends in a node of a binary tree: every id brings all its ancestors.
chain = st.integers(1, 2**6).map(lambda leaf: [leaf >> up for up in reversed(range(leaf.bit_length()))])
requests = st.lists(
    st.tuples(chain, st.integers(0, 9), st.integers(0, 40), st.sampled_from([0.0, 0.05, 0.4, 3.0])),
    min_size=1,
    max_size=25,
)
computes = st.sampled_from(
    [f"fixed,prefill_ms_per_token={prefill},decode_ms={decode}" for prefill in (0, 10, 100) for decode in (0, 7, 100)]
)


@st.composite
def setups(draw: Any) -> dict[str, Any]:
    """Workers, tiers with slow devices, and every way to serve."""
    workers = draw(st.integers(1, 2))
    levels = draw(st.integers(1, 3))
    tiers: list[dict[str, Any]] = [{"name": "gpu", "capacity": draw(st.integers(5, CAPACITY))}]
    for level in range(1, levels):
        tier: dict[str, Any] = {"name": f"tier{level}", "capacity": draw(st.integers(4, 40))}
        if draw(st.booleans()):
            tier |= {"device": ONE_GB_PER_S, "sharing": draw(st.sampled_from(["fair", "fifo"]))}
        tier["write"] = draw(st.sampled_from([None, "through", "back", "none"]))
        tier["scope"] = "cluster" if workers > 1 and level == levels - 1 and draw(st.booleans()) else "worker"
        tiers.append({key: value for key, value in tier.items() if value is not None})
    worker = {
        "batch_tokens": draw(st.sampled_from([7, 64, 8192])),
        "sequences": draw(st.sampled_from([1, 3, 256])),
        "chunked": draw(st.booleans()),
        "share": draw(st.booleans()),
        "rebuild": draw(st.sampled_from(["0s", "3ms"])),
        "decode": draw(st.booleans()),
    }
    if levels > 1:
        worker["fetches"] = draw(st.sampled_from([0, 1, 8]))
    if any("device" in tier for tier in tiers):
        worker |= {
            "load": draw(st.sampled_from(["always", "cheaper"])),
            "store": draw(st.sampled_from(["async", "blocking"])),
        }
    placement = draw(st.sampled_from(["inclusive", "exclusive"])) if levels > 1 else "inclusive"
    if placement == "exclusive":
        tiers = [{key: value for key, value in tier.items() if key != "write"} for tier in tiers]
    router = {"router": draw(st.sampled_from(["round-robin", "max-prefix"]))} if workers > 1 else {}
    return {
        "tiers": tiers,
        "workers": workers,
        "worker": worker,
        "placement": placement,
        "block_bytes": draw(st.sampled_from([GB // 100, GB])),
        "arrivals": draw(st.sampled_from(["trace", "trace,rate=3", "concurrency,concurrency=2"])),
        **router,
    }


def check_rows(result: kvbench.ReplayResult, decodes: bool) -> None:
    """Each request, by itself."""
    assert result.requests is not None
    for row in result.requests.to_pylist():
        missed = sum(row[name] for name in MISS_REASONS)
        if row["status"] == "rejected":
            assert row["need_blocks"] > 5
            assert row["hit_blocks"] == missed - row["miss_partial_blocks"] == 0
            continue
        assert row["status"] == "done"
        assert row["hit_blocks"] + missed == row["blocks"]
        assert min(row[name] for name in MISS_REASONS) >= 0
        assert row["generated_tokens"] == (row["output_tokens"] if decodes else min(row["output_tokens"], 1))
        if row["preemptions"] == 0:  # else what it had computed is gone, and what others have is found
            assert row["computed_tokens"] == max(row["input_tokens"] - row["hit_tokens"], 1)
            assert row["readmitted_blocks"] == 0
        times = [row[name] for name in ("arrival_ns", "routed_ns", "admitted_ns", "prefill_start_ns", "end_ns")]
        assert times == sorted(times)
        if row["output_tokens"]:
            assert row["queue_ns"] + row["fetch_ns"] + row["prefill_ns"] == row["ttft_ns"]
            assert row["prefill_start_ns"] <= row["first_token_ns"] <= row["end_ns"]


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timed") / "t.parquet"


@settings(deadline=None, report_multiple_bugs=False)
@given(requests, computes, setups())
def test_every_request_ends_and_is_accounted_for(
    timeline: Path, rows: list[Any], compute: str, setup: dict[str, Any]
) -> None:
    at = [sum(gap for *_, gap in rows[: i + 1]) for i in range(len(rows))]
    table = trace(
        [ids for ids, *_ in rows],
        at,
        tokens=[10 * len(ids) - lacking for ids, lacking, *_ in rows],
        answers=[answer for *_, answer, _ in rows],
    )
    result = serve(table, compute, timeline=str(timeline), sample="500ms", force=True, **setup)
    timed, summary = result.summary["timed"], result.summary
    assert timed["run"]["stop"] == "all requests done"
    assert summary["requests"]["arrived"] == len(rows)
    assert summary["requests"]["unfinished"] == 0
    check_rows(result, setup["worker"]["decode"])
    assert summary["blocks"]["hit"] + sum(summary["misses"].values()) == summary["blocks"]["asked"]
    for worker in timed["workers"]["each"]:
        assert worker["utilisation"] is None or worker["utilisation"] <= 1
    prefilled = sum(worker["prefill_tokens"] for worker in timed["workers"]["each"])
    assert prefilled == sum(value for value in column(result, "computed_tokens") if value is not None)
    for link in timed["links"]:
        assert link["moved_bytes"] * 10**9 <= link["bandwidth_bytes_per_s"] * link["busy_ns"]
    last = None
    for sample in pq.read_table(timeline).to_pylist():
        if sample["kind"] == "store":
            parts = [
                sample[f"{name}_blocks"]
                for name in ("pinned", "private", "reusable", "free")
                if sample[f"{name}_blocks"] is not None
            ]
            assert min(parts) >= 0
        assert sample["busy_share"] is None or 0 <= sample["busy_share"] <= 1
        last = sample["time_ns"]
    ended = [
        sample
        for sample in pq.read_table(timeline).to_pylist()
        if sample["time_ns"] == last and sample["kind"] == "store"
    ]
    assert all(sample["pinned_blocks"] == 0 and not sample["private_blocks"] for sample in ended), (
        "every lease is released"
    )


def test_the_timeline_only_looks(tmp_path: Path) -> None:
    """No figure is another one for it, and no worker or link is busier than all the time."""
    path = tmp_path / "t.parquet"
    tiers = [{"name": "gpu", "capacity": 5}, {"name": "cpu", "device": ONE_GB_PER_S}]
    settings: dict[str, Any] = {"tiers": tiers, "block_bytes": GB}
    table = trace([[*range(5)], [*range(10, 15)], [*range(5)]], [0, 10.3, 40], answers=[7, 7, 7])
    assert serve(table, timeline=str(path), sample="700ms", **settings).summary == serve(table, **settings).summary
    rows = pq.read_table(path).to_pylist()
    assert all(0 <= row["busy_share"] <= 1 for row in rows if row["busy_share"] is not None)
    times = sorted({row["time_ns"] for row in rows})
    assert times[:-1] == [700 * MS * k for k in range(len(times) - 1)]
    assert len(rows) == len(times) * (2 + 1 + 2)


def test_a_prompt_that_can_never_fit_is_rejected_with_need_and_room_and_the_rest_goes_on() -> None:
    """With its answer it needs 6 blocks, or 5 of 4."""
    rows = [[1], [*range(10, 16)], [2], [3]]
    result = serve(trace(rows, [0] * 4, answers=[1, 1, 1, 32]), capacity=4, worker="sequences=1")
    assert column(result, "status") == ["done", "rejected", "done", "rejected"]
    assert column(result, "need_blocks") == [None, 6, None, 5]
    assert seconds(result, "ttft_ns") == [1, None, 2, None]
    requests = result.summary["requests"]
    assert (requests["done"], requests["rejected"]) == (2, 2)
    assert requests["rejected_examples"][0] == "request 1 needs 6 GPU blocks, and a worker has 4"
    assert result.summary["timed"]["ttft_ns"]["n"] == 2
    fits = serve(trace([[3]], [0], answers=[31]), capacity=4)
    assert column(fits, "status") == ["done"]
