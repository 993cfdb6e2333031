"""Golden runs of vLLM's block pool under preset ``vllm``: hit tokens and removed blocks, in order.

Scenario 2 (two copies of one block, made by requests that run at the same time) is left to timed replay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.trace.schema import TraceFacts

BLOCK_TOKENS = 16
CHAINS = {"A": [100, 101, 102, 103], "B": [200, 201, 202, 203], "C": [300, 301, 302]}
SERVED = [("A", 64), ("B", 64), ("A", 64), ("C", 48), ("B", 65)]
NAMES = {key: f"{name.lower()}{at}" for name, chain in CHAINS.items() for at, key in enumerate(chain)}


def trace(served: list[tuple[str, int]], tenants: list[str] | None = None) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "arrival_ns": pa.array(range(len(served)), pa.int64()),
        "input_tokens": pa.array([tokens for _, tokens in served], pa.uint32()),
        "block_ids": pa.array([CHAINS[name] for name, _ in served], pa.list_(pa.uint64())),
    }
    if tenants is not None:
        columns["tenant"] = pa.array(tenants)
    facts = TraceFacts(block_tokens=BLOCK_TOKENS, tail_rule="floor")
    return pa.table(columns).replace_schema_metadata(facts.to_metadata())


def run(table: pa.Table, folder: Path, **tier: Any) -> tuple[list[int], list[list[str]]]:
    """Hit tokens and removed blocks of each request, in a pool of 8 blocks."""
    file = folder / "events.parquet"
    tiers = [{"name": "gpu", "capacity": 8, **tier}]
    result = kvbench.replay(table, preset="vllm", tiers=tiers, keep_requests=True, events=str(file), force=True)
    removed: list[list[str]] = [[] for _ in range(table.num_rows)]
    for event in pq.read_table(file).to_pylist():
        if event["kind"] == "DELETE":
            removed[event["request"]].append(NAMES.get(event["key"], "nameless"))
    assert result.requests is not None
    return result.requests.column("hit_tokens").to_pylist(), removed


@pytest.fixture
def scenarios(shared: Path) -> list[dict[str, Any]]:
    found = json.loads((shared / "golden/golden_vllm.json").read_text())["manager_scenarios"]
    assert isinstance(found, list)
    return found


def test_the_block_pool_removes_the_same_blocks_in_the_same_order(
    scenarios: list[dict[str, Any]], tmp_path: Path
) -> None:
    steps = scenarios[0]["steps"][: len(SERVED)]
    hits, removed = run(trace(SERVED), tmp_path)
    assert hits == [step["hit_tokens"] for step in steps]
    assert removed == [
        [name for kind, names, *_ in step["events"] if kind == "BlockRemoved" for name in names] for step in steps
    ]
    stats = scenarios[0]["steps"][-1]
    assert (sum(hits), sum(tokens for _, tokens in SERVED)) == (stats["hits"], stats["queries"])


def test_a_block_without_a_hash_is_used_first_or_in_its_turn_by_version(
    scenarios: list[dict[str, Any]], tmp_path: Path
) -> None:
    """From 0.23 on the partial block of the last request is at the front of the queue, so the next block
    evicts nothing; before, it stood behind the blocks of C."""
    assert scenarios[0]["steps"][4]["free_queue"][0] == "_1"
    table = trace([*SERVED, ("C", 48)])
    assert run(table, tmp_path)[1][5] == []
    longer = trace([*SERVED, ("A", 64)])
    assert run(longer, tmp_path)[1][5] == ["c2", "c1", "c0"]
    assert run(longer, tmp_path, partial="in-turn")[1][5] == ["c2", "c1", "c0", "nameless"]


def test_salts_keep_tenants_apart(scenarios: list[dict[str, Any]], tmp_path: Path) -> None:
    golden = next(scenario for scenario in scenarios if scenario["name"] == "cache_salt isolation")
    table = trace([("A", 65)] * 3, tenants=["x", "y", "y"])
    assert run(table, tmp_path, capacity=100)[0] == golden["hits"]
