"""The compiled timed replay against a second one in plain Python, request by request."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

import kvbench
from kvbench.plugins import load_registry
from tests.replays.model_blocks import COUNTS, TIMES, Job, Lower, Settings
from tests.replays.timed_model import Model

BLOCK_TOKENS, BLOCK_BYTES = 10, 1000

# The chain that ends in a node of a binary tree: every id brings all its ancestors.
chain = st.integers(1, 2**5).map(lambda leaf: [leaf >> up for up in reversed(range(leaf.bit_length()))])
chains = st.builds(lambda head, tail: head + [1000 * head[-1] + i for i in range(tail)], chain, st.integers(0, 3))
requests = st.lists(
    st.tuples(st.integers(0, 40), chains, st.integers(0, BLOCK_TOKENS - 1), st.integers(0, 35)), min_size=1, max_size=14
)
"""Gap to the request before in units of 100 ns, blocks, tokens that the last block lacks, and tokens of the answer."""


@st.composite
def setups(draw: Any, *, tiers: bool) -> Settings:
    """A small GPU, so that answers that grow find no room, and blocks are evicted."""
    lower = None
    if tiers:
        lower = Lower(
            capacity=draw(st.none() | st.integers(1, 12)),
            read_latency_ns=draw(st.sampled_from([0, 1000, 3000])),
            write_latency_ns=draw(st.sampled_from([0, 1000, 5000])),
            bytes_per_ns=Fraction(draw(st.sampled_from([1, 2, 10]))),
            fair=draw(st.booleans()),
        )
    return Settings(
        block_tokens=BLOCK_TOKENS,
        block_bytes=BLOCK_BYTES,
        capacity=draw(st.integers(5, 14)),
        token_ns=draw(st.sampled_from([0, 10, 37])),
        decode_ns=draw(st.sampled_from([0, 50, 211])),
        overhead_ns=draw(st.sampled_from([0, 13])),
        rebuild_ns=draw(st.sampled_from([0, 7])),
        batch_tokens=draw(st.sampled_from([3, 8, 25, 60, 1000])),
        sequences=draw(st.sampled_from([1, 2, 3, 256])),
        fetches=draw(st.sampled_from([0, 1, 2])) if tiers else 8,
        chunked=draw(st.booleans()),
        share=draw(st.booleans()),
        blocking=tiers and draw(st.booleans()),
        decode=draw(st.sampled_from([True, True, True, False])),
        recompute_block=draw(st.booleans()),
        lower=lower,
    )


def served(make_trace: Callable[..., pa.Table], rows: list[tuple[int, list[int], int, int]], setup: Settings):
    """The rows through the compiled replay, and through the model."""
    arrival_ns, now = [], 0
    for gap, *_ in rows:
        arrival_ns.append(now)
        now += 100 * gap
    trace = make_trace(
        [keys for _, keys, _, _ in rows],
        [lacks for _, _, lacks, _ in rows],
        arrival_ns=pa.array(arrival_ns, pa.int64()),
        output_tokens=pa.array([answer for *_, answer in rows], pa.uint32()),
    )
    tokens = trace["input_tokens"].to_pylist()
    jobs = [
        (at, keys[: prompt // BLOCK_TOKENS], prompt, answer)
        for at, (_, keys, _, answer), prompt in zip(arrival_ns, rows, tokens, strict=True)
    ]
    model = Model(setup)
    return replayed(trace, setup), model, model.run(jobs)


def replayed(trace: pa.Table, setup: Settings) -> kvbench.ReplayResult:
    tiers: list[dict[str, Any]] = [{"name": "gpu", "capacity": setup.capacity, "policy": "lru"}]
    if setup.lower:
        lower = setup.lower
        tiers.append(
            {
                "name": "cpu",
                "capacity": "infinite" if lower.capacity is None else lower.capacity,
                "sharing": "fair" if lower.fair else "fifo",
                "device": {
                    "name": "cpu-pcie4",
                    "read_gb_per_s": float(lower.bytes_per_ns),
                    "write_gb_per_s": float(lower.bytes_per_ns),
                    "read_latency_us": lower.read_latency_ns / 1000,
                    "write_latency_us": lower.write_latency_ns / 1000,
                    "concurrent_operations": "unlimited",
                },
            }
        )
    worker = {
        "batch_tokens": setup.batch_tokens,
        "sequences": setup.sequences,
        "fetches": setup.fetches,
        "chunked": setup.chunked,
        "share": setup.share,
        "step_overhead": f"{setup.overhead_ns}ns",
        "rebuild": f"{setup.rebuild_ns}ns",
        "store": "blocking" if setup.blocking else "async",
        "decode": setup.decode,
    }
    return kvbench.replay(
        trace,
        tiers=tiers,
        block_bytes=BLOCK_BYTES,
        compute=f"fixed,prefill_ms_per_token={setup.token_ns / 1e6:f},decode_ms={setup.decode_ns / 1e6:f}",
        worker=worker,
        recompute="block" if setup.recompute_block else "none",
        keep_requests=True,
        registry=load_registry(autoload=False),
    )


def compare(result: kvbench.ReplayResult, model: Model, jobs: list[Job]) -> None:
    assert result.requests is not None
    for row, job in zip(result.requests.to_pylist(), jobs, strict=True):
        assert row["status"] == job.status, row
        assert row["need_blocks"] == job.need_blocks, row
        assert row["arrival_ns"] == job.arrival_ns, row
        if job.status == "rejected":
            continue
        told = {name: row[name] for name in (*TIMES, *COUNTS) if name in row}
        found = {name: value for name, value in {**job.times, **job.counts}.items() if name in told}
        assert told == found, f"request {job.number}"
    [worker] = result.summary["timed"]["workers"]["each"]
    assert worker["steps"] == model.steps
    assert worker["busy_ns"] == model.busy_ns
    assert worker["rebuilds"] == model.rebuilds
    assert worker["preemptions"] == sum(job.counts["preemptions"] for job in jobs)


def preemptions(jobs: list[Job]) -> float:
    return float(sum(job.counts["preemptions"] for job in jobs))


@settings(max_examples=120, deadline=None)
@given(requests, setups(tiers=False))
def test_one_gpu_serves_as_the_model_does(make_trace: Any, rows: list[Any], setup: Settings) -> None:
    result, model, jobs = served(make_trace, rows, setup)
    compare(result, model, jobs)
    target(preemptions(jobs))


@settings(max_examples=120, deadline=None)
@given(requests, setups(tiers=True))
def test_a_tier_below_serves_as_the_model_does(make_trace: Any, rows: list[Any], setup: Settings) -> None:
    result, model, jobs = served(make_trace, rows, setup)
    compare(result, model, jobs)
    target(preemptions(jobs))


RANGES = ((1, 2**5), (0, 12), (0, BLOCK_TOKENS), (0, 36))
"""Of the last block, the gap, what the last block lacks, and the answer of a request."""


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("fair", [False, True])
def test_a_crowded_worker_serves_as_the_model_does(make_trace: Any, fair: bool, share: bool) -> None:
    """With preemptions, hits in both tiers, writes that are lost and blocks that are not visible yet."""
    random = np.random.default_rng(1)
    leaves, gaps, lacking, answers = (random.integers(low, high, 120).tolist() for low, high in RANGES)
    ids = [[leaf >> up for up in reversed(range(leaf.bit_length()))] for leaf in leaves]
    lower = Lower(12, 1000, 300, Fraction(1, 1), fair)
    setup = Settings(
        BLOCK_TOKENS, BLOCK_BYTES, 14, token_ns=10, decode_ns=200, batch_tokens=60, share=share, lower=lower
    )
    rows = list(zip(gaps, ids, lacking, answers, strict=True))
    result, model, jobs = served(make_trace, rows, setup)
    compare(result, model, jobs)
    counts = {name: sum(job.counts[name] for job in jobs) for name in COUNTS}
    often = ("preemptions", "hit_gpu_blocks", "hit_cpu_blocks", "readmitted_blocks", "evicted_blocks")
    assert all(counts[name] > 20 for name in often), counts
    assert model.lost > 5
    assert share or counts["miss_not_visible_blocks"] > 0
