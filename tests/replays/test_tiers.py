"""Tier stacks through the public door, on the sample trace (semantics §4, §6, §7, §11, §13)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
HUGE = 10_000_000
FILES = ("output", "events", "timeline")

STACKS: dict[str, dict[str, Any]] = {
    "inclusive": {"tiers": [{"name": "gpu", "capacity": 60}, {"name": "cpu", "capacity": 300}, {"name": "ssd"}]},
    "chunked": {"tiers": [{"name": "gpu", "capacity": 61}, {"name": "cpu", "capacity": 320, "chunk": 4}]},
    "exclusive": {
        "placement": "exclusive",
        "tiers": [{"name": "gpu", "capacity": 60}, {"name": "cpu", "capacity": 300}, {"name": "ssd", "capacity": 900}],
    },
    "spill": {
        "placement": "spill",
        "walk": "once",
        "tiers": [{"name": "gpu", "capacity": 60}, {"name": "cpu", "capacity": 300}, {"name": "dfs", "capacity": 900}],
    },
    "lmcache": {
        "tiers": [
            {"name": "gpu", "capacity": 60},
            {"name": "cpu", "capacity": 300, "spare_own": False, "touch_on": "lookup", "chunk": 2},
            {"name": "disk", "capacity": 1_000, "chunk": 4, "fit": "all", "admission": "min-count,n=2"},
        ]
    },
    "watermark": {
        "tiers": [
            {"name": "gpu", "capacity": 60, "promotion": "temporary"},
            {"name": "cpu", "capacity": 300, "high": 0.9, "low": 0.6, "period_s": 1.0},
            {"name": "ssd", "capacity": 900, "policy": "fifo"},
        ]
    },
    "shared": {
        "workers": 3,
        "tiers": [{"name": "gpu", "capacity": 60}, {"name": "dfs", "capacity": 600, "scope": "cluster"}],
    },
    "shared back": {
        "workers": 4,
        "workers_per_host": 2,
        "router": "round-robin",
        "tiers": [
            {"name": "gpu", "capacity": 40},
            {"name": "cpu", "capacity": 120, "write": "back"},
            {"name": "host", "capacity": 400, "scope": "host", "write": "back"},
        ],
    },
    "ranks": {
        "tp": 2,
        "tiers": [{"name": "gpu", "capacity": 60, "scope": "rank"}, {"name": "cpu", "capacity": 300}],
    },
}
FAULTS = """
[[fault]]
kind = "get"
tier = "{below}"
share = 0.2
from_request = 200
to_request = 900

[[fault]]
kind = "unhealthy"
tier = "{below}"
from_request = 1000
to_request = 1100

[[fault]]
kind = "put"
tier = "{top}"
share = 0.3

[[fault]]
kind = "freeze"
from_request = 1300
to_request = 1350
"""

stacks = pytest.mark.parametrize("name", STACKS)


def replayed(trace: Any = CHAT, **settings: Any) -> kvbench.ReplayResult:
    return kvbench.replay(trace, keep_requests=True, **settings)


def column(result: kvbench.ReplayResult, name: str) -> list[Any]:
    assert result.requests is not None
    values: list[Any] = result.requests[name].to_pylist()
    return values


def faults_of(name: str, folder: Path) -> str:
    tiers = [tier["name"] for tier in STACKS[name]["tiers"]]
    path = folder / "faults.toml"
    path.write_text(FAULTS.format(top=tiers[0], below=tiers[1]))
    return str(path)


def files_of(trace: Any, folder: Path, name: str, **settings: Any) -> dict[str, bytes]:
    """The bytes of all files that a run writes."""
    folder.mkdir()
    paths = {kind: folder / f"{kind}.parquet" for kind in FILES}
    named = {kind: str(path) for kind, path in paths.items()}
    kvbench.replay(trace, timeline_every=100, **named, **STACKS[name], **settings)
    return {kind: path.read_bytes() for kind, path in paths.items()}


@pytest.mark.parametrize(
    "lower", [{"name": "cpu", "capacity": 50}, {"name": "cpu", "chunk": 4}, {"name": "cpu", "write": "none"}]
)
def test_a_tier_below_one_that_holds_everything_changes_nothing(lower: dict[str, Any]) -> None:
    """Semantics §13."""
    alone = replayed(tiers=[{"name": "gpu", "capacity": HUGE}])
    above = replayed(tiers=[{"name": "gpu", "capacity": HUGE}, lower])
    for name in ("hit_blocks", "hit_gpu_blocks", "infinite_hit_blocks", "evicted_from_gpu_blocks"):
        assert column(above, name) == column(alone, name)
    assert above.rates == alone.rates == replayed(capacity=HUGE).rates
    assert above.summary["misses"] == alone.summary["misses"]
    assert set(column(above, "hit_cpu_blocks")) == {0}


@pytest.mark.parametrize("capacity", [40, 400])
@pytest.mark.parametrize("order", ["tail-first", "head-first"])
def test_what_a_tier_below_does_changes_no_hit_of_a_tier_that_takes_all(capacity: int, order: str) -> None:
    """An inclusive stack's GPU stores every block of every request, so it evicts as it does alone."""
    alone = replayed(capacity=capacity, order=order)
    stack = replayed(
        tiers=[{"name": "gpu", "capacity": capacity}, {"name": "cpu", "capacity": 2 * capacity}], order=order
    )
    assert column(stack, "evicted_blocks") >= column(alone, "evicted_blocks")
    assert all(
        more >= less for more, less in zip(column(stack, "hit_blocks"), column(alone, "hit_blocks"), strict=True)
    )
    one = replayed(tiers=[{"name": "gpu", "capacity": capacity}], order=order)
    assert column(one, "hit_blocks") == column(alone, "hit_blocks")
    assert one.summary["misses"] == alone.summary["misses"]


@pytest.mark.parametrize("placement", ["inclusive", "exclusive", "spill"])
@pytest.mark.parametrize("walk", ["any", "once"])
def test_tiers_that_hold_everything_hit_as_an_infinite_cache(placement: str, walk: str) -> None:
    """Semantics §13. The GPU holds any one request: what it truncated, an exclusive tier below would never see."""
    bound = replayed().summary
    assert bound["rates"] == bound["infinite_rates"]
    result = replayed(
        placement=placement, walk=walk, tiers=[{"name": "gpu", "capacity": 300}, {"name": "cpu", "capacity": HUGE}]
    )
    assert result.rates == bound["rates"]
    assert column(result, "hit_blocks") == column(result, "infinite_hit_blocks")
    assert any(column(result, "hit_cpu_blocks"))


@stacks
def test_equal_runs_write_equal_bytes_whatever_the_batches_of_the_trace(name: str, tmp_path: Path) -> None:
    """Semantics §11; faults begin and end in the middle of batches."""
    faults = faults_of(name, tmp_path)
    table = pa.ipc.open_file(str(CHAT)).read_all()
    expected = files_of(CHAT, tmp_path / "first", name, faults=faults, retries=1)
    for run, rows in enumerate([len(table), 7, 100, 333]):
        path = tmp_path / f"chat{run}.arrow"
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        again = files_of(path, tmp_path / f"run{run}", name, faults=faults, retries=1)
        for kind in FILES:
            assert pq.read_table(pa.BufferReader(again[kind])).equals(pq.read_table(pa.BufferReader(expected[kind]))), (
                kind
            )
        assert again == expected


@stacks
@pytest.mark.parametrize("faulty", [False, True], ids=["healthy", "faulty"])
def test_credits_and_misses_add_up_to_what_was_asked(name: str, faulty: bool, tmp_path: Path) -> None:
    """In every row and in the summary (semantics §4.2, §10.2)."""
    settings = {"faults": faults_of(name, tmp_path)} if faulty else {}
    result = replayed(**STACKS[name], **settings)
    assert result.requests is not None
    tiers = [tier["name"] for tier in STACKS[name]["tiers"]]
    credited = [column(result, f"hit_{tier}_blocks") for tier in tiers]
    missed = [column(result, field) for field in result.requests.column_names if field.startswith("miss_")]
    evicted = [column(result, f"evicted_from_{tier}_blocks") for tier in tiers]
    for row, blocks in enumerate(column(result, "blocks")):
        hits = sum(credit[row] for credit in credited)
        assert hits == column(result, "hit_blocks")[row] if row % 97 == 0 else True
        assert hits + sum(reason[row] for reason in missed) == blocks
        assert min(reason[row] for reason in (*credited, *missed, *evicted)) >= 0
    assert [sum(row) for row in zip(*evicted, strict=True)] == column(result, "miss_evicted_blocks")
    blocks = result.summary["blocks"]
    assert blocks["hit"] + sum(result.summary["misses"].values()) == blocks["asked"]
    assert sum(record["hit_blocks"] for record in result.summary["tiers"]) == blocks["hit"]
    assert [record["hit_blocks"] for record in result.summary["tiers"]] == [sum(credit) for credit in credited]


@stacks
@pytest.mark.parametrize("faulty", [False, True], ids=["healthy", "faulty"])
def test_folding_the_events_file_gives_what_is_resident(name: str, faulty: bool, tmp_path: Path) -> None:
    """By ``kvbench events fold``, which also checks each event against the state before it (semantics §7.1)."""
    settings = {"faults": faults_of(name, tmp_path)} if faulty else {}
    events, state = tmp_path / "events.parquet", tmp_path / "state.parquet"
    result = kvbench.replay(CHAT, events=str(events), **STACKS[name], **settings)
    command = [sys.executable, "-m", "kvbench", "events", "fold", str(events), "-o", str(state), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    chunks = {tier["name"]: tier.get("chunk", 1) for tier in STACKS[name]["tiers"]}
    folded: dict[str, int] = dict.fromkeys(chunks, 0)
    for place in json.loads(ran.stdout)["places"]:
        folded[place["tier"]] += place["blocks"] * chunks[place["tier"]]
    assert folded == {record["tier"]: record["used_blocks"] for record in result.summary["tiers"]}
    assert pq.read_table(state).num_rows == sum(blocks // chunks[tier] for tier, blocks in folded.items())


@stacks
def test_the_timeline_ends_where_the_summary_does(name: str, tmp_path: Path) -> None:
    """And in each row the parts of a store make its capacity."""
    path = tmp_path / "timeline.parquet"
    result = kvbench.replay(CHAT, timeline=str(path), timeline_every=500, **STACKS[name])
    rows = pq.read_table(path).to_pylist()
    capacity = {record["tier"]: record["capacity_blocks"] for record in result.summary["tiers"]}
    for row in rows:
        assert row["pinned_blocks"] == 0
        parts = [row["pinned_blocks"], row["reusable_blocks"], row["free_blocks"]]
        assert row["free_blocks"] is None if capacity[row["tier"]] is None else sum(parts) == capacity[row["tier"]]
    last = [row for row in rows if row["requests"] == rows[-1]["requests"]]
    assert rows[-1]["requests"] == result.summary["requests"]["done"]
    for record in result.summary["tiers"]:
        mine = [row for row in last if row["tier"] == record["tier"]]
        assert len(mine) == record["stores"]
        assert sum(row["reusable_blocks"] for row in mine) == record["used_blocks"]
        assert sum(row["hit_blocks"] for row in mine) == record["hit_blocks"]
