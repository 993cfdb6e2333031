"""Timed replay where several things come together: faults, copies, events and the end of the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clocked import GB, ONE_GB_PER_S, column, serve, trace

from kvbench.errors import ConfigError


def events(path: Path, **fields: Any) -> list[dict[str, Any]]:
    """The events that have these values."""
    rows = pq.read_table(path).to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def test_blocks_that_are_computed_again_beside_running_requests_need_no_room_twice() -> None:
    """A request holds them privately; they are not stored as copies, which nobody would pin."""
    source = trace(
        [[1, 2, 5, 10, 20, 40, 81], [1, 2, 5, 11], [1, 2], [1, 2, 4, 8], [1, 2, 4]],
        [1.2, 2.5, 2.9, 2.95, 4.25],
        tokens=[69, 31, 12, 36, 30],
        answers=[30, 30, 30, 60, 5],
    )
    result = serve(
        source,
        "fixed,prefill_ms_per_token=10,decode_ms=0",
        tiers=[{"name": "gpu", "capacity": 10, "partial": "first"}],
        recompute="block",
        arrivals="concurrency,concurrency=3",
    )
    assert column(result, "status") == ["done"] * 5


@pytest.mark.parametrize(("tier", "partial"), [("gpu", "in-turn"), ("cpu", "first")])
def test_a_way_to_keep_partial_blocks_that_the_clock_does_not_know_is_refused(tier: str, partial: str) -> None:
    tiers: list[dict[str, Any]] = [{"name": "gpu", "capacity": 10}, {"name": "cpu", "capacity": 10}]
    tiers[tier == "cpu"]["partial"] = partial
    with pytest.raises(ConfigError, match=f"partial = {partial} has no effect in a timed replay"):
        serve(trace([[1]], [0]), tiers=tiers)


def test_an_insert_tells_of_the_request_that_computed_the_block(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    serve(trace([[1, 2], [3]], [0, 0.5]), tiers=[{"name": "gpu", "capacity": 10}], events=str(path))
    assert [(event["key"], event["request"]) for event in events(path)] == [(1, 0), (2, 0), (3, 1)]


def test_a_block_that_is_lost_to_a_fault_while_it_is_written_is_not_written(tmp_path: Path) -> None:
    """It is computed at 1 s, and its write of 5 s has not ended when it cannot be read at 2 s."""
    path, faults = tmp_path / "e.parquet", tmp_path / "faults.toml"
    faults.write_text('[[fault]]\nkind = "get"\ntier = "gpu"\nfrom_s = 1.5\nto_s = 3.0\n', "utf-8")
    result = serve(
        trace([[1], [1, 2]], [0, 2]),
        tiers=[{"name": "gpu", "capacity": 10}, {"name": "disk", "capacity": 10, "device": ONE_GB_PER_S}],
        block_bytes=5 * GB,
        faults=str(faults),
        events=str(path),
    )
    assert column(result, "hit_blocks") == [0, 0]
    assert [event["key"] for event in events(path, tier="disk", kind="INSERT")] == [2]


def test_a_pause_that_the_clock_cannot_hold_is_an_error() -> None:
    source = trace(
        [[1], [2]],
        [0, 1],
        session_id=pa.array(["a", "a"]),
        think_time_ns=pa.array([0, 2**63 - 1], pa.int64()),
    )
    with pytest.raises(ConfigError, match="the simulated clock ends at"):
        serve(source, arrivals="session", tiers=[{"name": "gpu", "capacity": 10}])
