"""The timeline: when it is sampled, and what holds in each of its rows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.results.timeline import CHUNK_COUNTS, OTHER_COUNTS

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
REQUESTS = 1_952
TIERS: list[dict[str, Any]] = [
    {"name": "gpu", "capacity": 60},
    {"name": "cpu", "capacity": 400, "chunk": 4, "admission": "min-count,n=2"},
    {"name": "ssd", "chunk": 8},
]
STACKS: dict[str, dict[str, Any]] = {
    "inclusive": {"tiers": TIERS},
    "exclusive": {"placement": "exclusive", "tiers": [TIERS[0], {"name": "cpu", "capacity": 300}]},
    "spill": {"placement": "spill", "tiers": [TIERS[0], {"name": "cpu", "capacity": 300}]},
    "workers": {
        "workers": 3,
        "workers_per_host": 2,
        "tiers": [TIERS[0], {"name": "cpu", "capacity": 300, "scope": "host"}],
    },
}


def timeline(tmp_path: Path, every: int, trace: pa.Table | Path = CHAT, **settings: Any) -> pa.Table:
    path = tmp_path / f"timeline{len(list(tmp_path.iterdir()))}.parquet"
    kvbench.replay(trace, timeline=str(path), timeline_every=every, **settings)
    return pq.read_table(path)


def in_batches(rows: int) -> pa.Table:
    """The sample in batches of so many rows."""
    with pa.memory_map(str(CHAT)) as source:
        table = pa.ipc.open_file(source).read_all()
    return pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=rows))


@pytest.mark.parametrize(
    ("every", "points"),
    [
        (500, [500, 1_000, 1_500, REQUESTS]),
        (976, [976, REQUESTS]),
        (REQUESTS, [REQUESTS]),
        (10_000, [REQUESTS]),
        (1, [*range(1, REQUESTS + 1)]),
    ],
)
def test_it_is_sampled_after_every_so_many_requests_and_once_at_the_end(
    tmp_path: Path, every: int, points: list[int]
) -> None:
    table = timeline(tmp_path, every, tiers=TIERS)
    assert table["requests"].to_pylist() == [point for point in points for _ in TIERS]
    assert table["tier"].to_pylist() == ["gpu", "cpu", "ssd"] * len(points)
    arrivals = in_batches(REQUESTS)["arrival_ns"].to_pylist()
    assert table["time_ns"].to_pylist() == [arrivals[point - 1] for point in points for _ in TIERS]


@pytest.mark.parametrize("stack", STACKS)
def test_pinned_reusable_and_free_are_the_capacity(tmp_path: Path, stack: str) -> None:
    for row in timeline(tmp_path, 50, **STACKS[stack]).to_pylist():
        assert min(row["pinned_blocks"], row["reusable_blocks"]) >= 0
        capacity = {tier["name"]: tier.get("capacity") for tier in STACKS[stack]["tiers"]}[row["tier"]]
        if capacity is None:
            assert row["free_blocks"] is None
        else:
            assert row["free_blocks"] >= 0
            assert row["pinned_blocks"] + row["reusable_blocks"] + row["free_blocks"] == capacity


@pytest.mark.parametrize("stack", STACKS)
def test_counters_never_fall_and_the_last_ones_are_those_of_the_summary(tmp_path: Path, stack: str) -> None:
    path = tmp_path / "timeline.parquet"
    result = kvbench.replay(CHAT, timeline=str(path), timeline_every=37, block_bytes="1MiB", **STACKS[stack])
    rows = pq.read_table(path).to_pylist()
    counters = [*(f"{name}_blocks" for name in CHUNK_COUNTS), *OTHER_COUNTS, "read_bytes", "written_bytes"]
    places = sorted({(row["tier"], row["store"]) for row in rows})
    assert len(places) == sum(record["stores"] for record in result.summary["tiers"])
    sums: dict[str, dict[str, int]] = {}
    for tier, store in places:
        mine = [row for row in rows if (row["tier"], row["store"]) == (tier, store)]
        for before, after in pairwise(mine):
            assert all(before[name] <= after[name] for name in counters)
        for name in counters:
            into = sums.setdefault(tier, dict.fromkeys(counters, 0))
            into[name] += mine[-1][name]
    for record in result.summary["tiers"]:
        assert sums[record["tier"]] == {name: record[name] for name in counters}


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_it_does_not_depend_on_the_batches_of_the_trace(tmp_path: Path, stack: str, rows: int) -> None:
    assert timeline(tmp_path, 30, in_batches(rows), **STACKS[stack]) == timeline(tmp_path, 30, **STACKS[stack])


@pytest.mark.parametrize("every", [1, 13, 1_000])
def test_it_changes_nothing(tmp_path: Path, every: int) -> None:
    """Batches are cut where it is sampled, and the result is the same."""
    path = tmp_path / "timeline.parquet"
    with_it = kvbench.replay(CHAT, timeline=str(path), timeline_every=every, tiers=TIERS, workers=2)
    assert with_it.summary == kvbench.replay(CHAT, tiers=TIERS, workers=2).summary


def test_bytes_are_null_where_the_size_of_a_block_is_not_known(tmp_path: Path) -> None:
    assert timeline(tmp_path, 1_000, tiers=TIERS)["read_bytes"].null_count == 6
    sized = timeline(tmp_path, 1_000, tiers=TIERS, block_bytes=10).to_pylist()
    for row in sized:
        assert (row["read_bytes"], row["written_bytes"]) == (10 * row["read_blocks"], 10 * row["written_blocks"])


def test_an_empty_trace_has_one_sample(tmp_path: Path) -> None:
    table = timeline(tmp_path, 10, in_batches(REQUESTS).slice(0, 0), tiers=TIERS[:1])
    assert table.select(["requests", "time_ns", "free_blocks"]).to_pylist() == [
        {"requests": 0, "time_ns": 0, "free_blocks": 60}
    ]
