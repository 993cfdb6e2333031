"""Golden runs of vLLM's block pool under preset ``vllm``: hit tokens and removed blocks, in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS, EVENT_REASONS
from kvbench.trace.schema import TraceFacts
from tests.stacks import Rig, keys, tier

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


def test_two_requests_that_run_at_once_make_two_copies_of_a_block(scenarios: list[dict[str, Any]]) -> None:
    """Scenario 2: the last block of a full hit is computed again while the first request still has its own."""
    steps = scenarios[1]["steps"]
    rig = Rig(preset="vllm", tiers=[tier("gpu", capacity=8)])
    a, c = keys(CHAINS["A"]), keys(CHAINS["C"])
    pool = rig.tiers["gpu"]

    def served(chain: Any, tokens: int) -> tuple[int, list[str], list[str]]:
        """Hit tokens, stored and removed blocks; a copy goes by the name of its block."""
        since = rig.log.size
        hit = rig.stack.serve(
            chain, request=rig.served, limit=(tokens - 1) // BLOCK_TOKENS, partial=tokens % BLOCK_TOKENS > 0
        )
        rig.served += 1
        events = np.frombuffer(rig.log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
        for event in events:
            if EVENT_REASONS[event["reason"]] == "recomputed":
                names[int(event["key"])] = names[int(event["parent"])]
        kinds = [(EVENT_KINDS[event["kind"]], names[int(event["key"])]) for event in events[since:]]
        found = {kind: [name for each, name in kinds if each == kind] for kind in ("INSERT", "DELETE")}
        return hit * BLOCK_TOKENS, found["INSERT"], found["DELETE"]

    names = dict(NAMES)
    first = served(a, 64)
    assert pool.pin(a) == 4
    second = served(a, 64)
    stored = [name for _, block_names, *_ in steps[0]["events"] for name in block_names]
    assert [first[0], second[0]] == steps[0]["hits"]
    assert first[1] + second[1] == stored
    pool.unpin(a)
    assert pool.used == len([name for name in steps[1]["free_queue"] if not name.startswith("_")])
    assert served(c, 48) == (0, steps[2]["events"][0][1], [])
    assert served(a, 65) == (steps[3]["hit_tokens"], [], steps[3]["events"][0][1])
    assert rig.held("gpu") == {*CHAINS["A"], *CHAINS["C"]}


def test_salts_keep_tenants_apart(scenarios: list[dict[str, Any]], tmp_path: Path) -> None:
    golden = next(scenario for scenario in scenarios if scenario["name"] == "cache_salt isolation")
    table = trace([("A", 65)] * 3, tenants=["x", "y", "y"])
    assert run(table, tmp_path, capacity=100)[0] == golden["hits"]
