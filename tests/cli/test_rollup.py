"""Requests added up by session, by worker and over time (user report J04)."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.errors import KvbenchError
from kvbench.results.parquet import read_manifest
from kvbench.results.rollup import roll_up
from tests.cli.conftest import Cli

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
MINUTES_NS = 10 * 60 * 10**9
TIMED: dict[str, Any] = {
    "workers": 2,
    "capacity": "1k",
    "compute": "fixed,prefill_ms_per_token=0.1,decode_ms=20",
    "window": {"warmup": "10%"},
}
KEYS = {
    "session": ("session_id", lambda row: row["session_id"]),
    "worker": ("worker", lambda row: row["worker"]),
    "10min": ("start_ns", lambda row: row["arrival_ns"] // MINUTES_NS * MINUTES_NS),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The requests file of a timed replay, and its summary."""
    path = tmp_path_factory.mktemp("run") / "requests.parquet"
    return path, kvbench.replay(CHAT, output=str(path), **TIMED).summary


@pytest.mark.parametrize("by", KEYS)
def test_j04_each_group_has_the_sums_and_latencies_of_its_requests(run: tuple[Path, dict[str, Any]], by: str) -> None:
    path, summary = run
    column, key = KEYS[by]
    rows = [row for row in pq.read_table(path).to_pylist() if row["request"] >= 195]  # a tenth warms up
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    table, _ = roll_up(path, by)
    assert set(table[column].to_pylist()) == groups.keys()
    for found in table.to_pylist():
        mine = groups[found[column]]
        assert found["requests"] == found["done_requests"] == len(mine)
        for name in ("input_tokens", "hit_tokens", "hit_blocks", "blocks", "evicted_blocks", "computed_tokens"):
            assert found[name] == sum(row[name] for row in mine), name
        assert found["token_rate"] == sum(row["hit_tokens"] for row in mine) / found["input_tokens"]
        assert found["first_arrival_ns"] == min(row["arrival_ns"] for row in mine)
        ttfts = [row["ttft_ns"] for row in mine]
        assert math.isclose(found["ttft_mean_ns"], np.mean(ttfts))
        assert math.isclose(found["ttft_p99_ns"], np.percentile(ttfts, 99))
    hits, tokens = (sum(table[name].to_pylist()) for name in ("hit_tokens", "input_tokens"))
    assert hits / tokens == summary["rates"]["token"], "requests count as in the summary"


def test_j04_one_run_gives_parquet_tables_at_three_grains_and_csv(
    cli: Cli, tmp_path: Path, run: tuple[Path, dict[str, Any]]
) -> None:
    for by, name in (("request", "requests"), ("session", "sessions"), ("60s", "slices")):
        done = cli("rollup", run[0], "--by", by, "-o", f"{name}.parquet")
        assert (done.code, done.err) == (0, "")
        assert f"wrote {name}.parquet" in done.out
        assert read_manifest(tmp_path / f"{name}.parquet")["rollup"] == by
    assert pq.read_table(tmp_path / "requests.parquet").equals(pq.read_table(run[0]))
    assert pq.read_schema(tmp_path / "sessions.parquet").field("token_rate").metadata == {b"unit": b"share"}
    slices = pq.read_table(tmp_path / "slices.parquet")
    starts = slices["start_ns"].to_pylist()
    assert starts == list(range(starts[0], starts[-1] + 1, 60 * 10**9)), "slices without requests are there, too"
    assert slices["end_ns"].to_pylist() == [start + 60 * 10**9 for start in starts]
    assert cli("rollup", run[0], "--by", "request", "-o", "requests.csv").code == 0
    with (tmp_path / "requests.csv").open() as file:
        assert sum(1 for _ in csv.DictReader(file)) == summary_requests(run)
    document = json.loads(cli("rollup", run[0], "--by", "session", "--json").out)
    assert len(document["rows"]) == pq.read_metadata(tmp_path / "sessions.parquet").num_rows


def summary_requests(run: tuple[Path, dict[str, Any]]) -> int:
    arrived: int = run[1]["requests"]["arrived"]
    return arrived


def test_what_is_not_known_is_null_and_sessions_without_a_name_are_one_group(tmp_path: Path) -> None:
    table = pa.table(
        {
            "arrival_ns": pa.array([0, 10, 10**10], pa.int64()),
            "input_tokens": pa.array([10, 20, 30], pa.uint32()),
            "session_id": pa.array(["a", None, None]),
        }
    )
    path = tmp_path / "requests.parquet"
    kvbench.replay(table, output=str(path))
    sessions, _ = roll_up(path, "session")
    assert sessions["session_id"].to_pylist() == ["a", None]
    assert sessions["requests"].to_pylist() == [1, 2]
    assert sessions["hit_tokens"].to_pylist() == [None, None]
    assert sessions["token_rate"].to_pylist() == [None, None]
    slices, _ = roll_up(path, "4s")
    assert slices["requests"].to_pylist() == [2, 0, 1]
    assert slices["first_arrival_ns"].to_pylist() == [0, None, 10**10]
    kvbench.replay(table.slice(0, 0).drop_columns(["session_id"]), output=str(path), force=True)
    assert [len(roll_up(path, by)[0]) for by in ("worker", "1s")] == [0, 0]


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("tenant", "give request, session, worker, or a time such as 60s"),
        ("0s", "give request, session, worker, or a time such as 60s"),
        ("1ns", "slices, more than 1,000,000"),
    ],
)
def test_a_bad_grain_is_one_clear_error(run: tuple[Path, dict[str, Any]], by: str, message: str) -> None:
    with pytest.raises(KvbenchError, match=message):
        roll_up(run[0], by)


def test_a_file_without_sessions_or_requests_is_one_clear_error(tmp_path: Path) -> None:
    path, events = tmp_path / "requests.parquet", tmp_path / "events.parquet"
    table = pa.ipc.open_file(CHAT).read_all().drop_columns(["session_id"])
    kvbench.replay(table, capacity=100, output=str(path), events=str(events))
    with pytest.raises(KvbenchError, match="has no session_id"):
        roll_up(path, "session")
    with pytest.raises(KvbenchError, match="is no table of requests"):
        roll_up(events, "session")
    with pytest.raises(KvbenchError, match=r"gone\.parquet cannot be read"):
        roll_up(tmp_path / "gone.parquet", "session")
