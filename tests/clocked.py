"""Tiny traces at given seconds, and timed replays of them in which everything takes whole seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import kvbench
from kvbench.plugins import load_registry
from kvbench.trace.schema import TraceFacts

SECOND = 1_000_000_000
MS = 1_000_000
BLOCK_TOKENS = 10

INSTANT = "fixed,prefill_ms_per_token=0,decode_ms=0"
STEADY = "fixed,prefill_ms_per_token=100,decode_ms=100"
"""A block of a prompt takes a second, and so do ten steps of decoding."""

GB = 10**9
ONE_GB_PER_S: dict[str, Any] = {
    "name": "nvme-gen4",
    "read_gb_per_s": 1,
    "write_gb_per_s": 1,
    "read_latency_us": 0,
    "write_latency_us": 0,
    "concurrent_operations": "unlimited",
}
"""With blocks of 1 GB, a second a block."""


def trace(
    rows: list[list[int]],
    at: Sequence[float],
    *,
    tokens: list[int] | None = None,
    answers: list[int] | None = None,
    **columns: pa.Array,
) -> pa.Table:
    """Requests for these block ids, at these seconds; ``tokens`` of the prompts where their last block is partial."""
    table = {
        "arrival_ns": pa.array([round(second * SECOND) for second in at], pa.int64()),
        "input_tokens": pa.array(tokens or [BLOCK_TOKENS * len(row) for row in rows], pa.uint32()),
        "block_ids": pa.array(rows, pa.list_(pa.uint64())),
        **({"output_tokens": pa.array(answers, pa.uint32())} if answers else {}),
        **columns,
    }
    return pa.table(table).replace_schema_metadata(TraceFacts(block_tokens=BLOCK_TOKENS).to_metadata())


def serve(source: pa.Table | Path, compute: str = STEADY, **settings: Any) -> kvbench.ReplayResult:
    """Replay on the clock, with built-in parts."""
    registry = load_registry(autoload=False)
    return kvbench.replay(source, compute=compute, keep_requests=True, registry=registry, **settings)


def column(result: kvbench.ReplayResult, name: str) -> list[Any]:
    """A column of the requests table."""
    assert result.requests is not None
    values = result.requests[name].to_pylist()
    assert isinstance(values, list)
    return values


def seconds(result: kvbench.ReplayResult, name: str) -> list[float | None]:
    """A column of times."""
    return [None if value is None else value / SECOND for value in column(result, name)]


def links(result: kvbench.ReplayResult) -> dict[str, Any]:
    """What each link did, by its name."""
    return {record["name"]: record for record in result.summary["timed"]["links"]}


def samples(path: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of one kind of a timeline."""
    rows = pq.read_table(path).to_pylist()
    return [row for row in rows if row["kind"] == kind]
