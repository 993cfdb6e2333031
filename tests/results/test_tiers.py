"""The record of each tier: what is derived from the counters of its stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvbench
from kvbench.errors import ConfigError
from kvbench.results.causes import explain_tiers
from kvbench.results.tiers import Blocks, reachable
from kvbench.results.totals import Totals
from kvbench.trace.schema import TraceFacts
from tests.stacks import SECOND_NS, tier


def trace(rows: list[list[int]], seconds: list[float] | None = None) -> pa.Table:
    """A trace of these blocks at ten tokens each, a second apart unless times are given."""
    times = seconds if seconds is not None else [float(at) for at in range(len(rows))]
    table = {
        "arrival_ns": pa.array([round(time * SECOND_NS) for time in times], pa.int64()),
        "input_tokens": pa.array([10 * len(row) for row in rows], pa.uint32()),
        "block_ids": pa.array(rows, pa.list_(pa.uint64())),
    }
    return pa.table(table).replace_schema_metadata(TraceFacts(block_tokens=10).to_metadata())


def records(rows: list[list[int]], seconds: list[float] | None = None, **settings: Any) -> dict[str, dict[str, Any]]:
    summary = kvbench.replay(trace(rows, seconds), **settings).summary
    return {record["tier"]: record for record in summary["tiers"]}


# -- orphans ---------------------------------------------------------------------------------------


def place(*blocks: tuple[int, int, int]) -> Blocks:
    """A place with these blocks: key, key before it, and position."""
    columns = np.array(blocks, dtype=np.int64).reshape(-1, 3).T
    return columns[0].astype(np.uint64), columns[1].astype(np.uint64), columns[2].astype(np.int32)


def test_a_chain_is_reached_across_places() -> None:
    upper, lower = place((1, 1, 0), (3, 2, 2), (5, 4, 4)), place((2, 1, 1), (7, 6, 1))
    assert [found.tolist() for found in reachable([upper, lower])] == [[True, True, False], [True, False]]


def test_nothing_is_reached_in_empty_places() -> None:
    assert [found.tolist() for found in reachable([place(), place()])] == [[], []]


CHAINS = st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=12), min_size=1, max_size=3)


@given(held=CHAINS)
def test_what_is_reached_is_what_a_walk_reaches(held: list[list[tuple[int, int]]]) -> None:
    """Chain c has the keys 10c, 10c + 1, …; a place holds some of them."""
    places = [place(*((10 * c + i, 10 * c + max(i - 1, 0), i) for c, i in dict.fromkeys(each))) for each in held]
    anywhere = {block for each in held for block in each}
    for each, found in zip(held, reachable(places), strict=True):
        for (chain, at), reached in zip(dict.fromkeys(each), found.tolist(), strict=True):
            assert reached == all((chain, before) in anywhere for before in range(at))


def test_blocks_that_lost_their_prefix_are_orphans_with_their_bytes() -> None:
    """FIFO evicts the first block of [1, 2, 3] under head-first order; its children stay behind."""
    found = records([[1, 2, 3], [9]], tiers=[tier("gpu", capacity=3, policy="fifo", order="head-first")], block_bytes=7)
    assert (found["gpu"]["orphan_blocks"], found["gpu"]["orphan_bytes"]) == (2, 14)
    both = records([[1, 2, 3], [9]], tiers=[tier("gpu", capacity=3, policy="fifo", order="head-first"), tier("cpu")])
    assert [record["orphan_blocks"] for record in both.values()] == [0, 0]


# -- sizes -----------------------------------------------------------------------------------------


def test_capacities_are_told_in_every_unit_and_for_all_stores() -> None:
    tiers = [
        tier("gpu", capacity=5),
        tier("cpu", capacity="1005B", chunk=2, scope="host"),
        tier("dfs", chunk=4, scope="cluster"),
    ]
    found = records([[1, 2]], tiers=tiers, workers=3, workers_per_host=2, block_bytes=100)
    gpu, cpu, dfs = found["gpu"], found["cpu"], found["dfs"]
    assert [gpu[f"capacity_{unit}"] for unit in ("blocks", "tokens", "bytes")] == [5, 50, 500]
    assert (gpu["stores"], gpu["host_stores"], gpu["all_stores_blocks"], gpu["unused_bytes"]) == (3, 2, 15, None)
    assert [cpu[f"capacity_{unit}"] for unit in ("blocks", "tokens", "bytes")] == [10, 100, 1_000]
    assert (cpu["stores"], cpu["host_stores"], cpu["all_stores_bytes"], cpu["unused_bytes"]) == (2, 1, 2_000, 5)
    assert {dfs[name] for name in dfs if name.startswith(("capacity_", "all_stores_"))} == {None}


def test_bytes_are_null_where_the_size_of_a_block_is_not_known() -> None:
    gpu = records([[1]], tiers=[tier("gpu", capacity=5, device="s3")])["gpu"]
    assert {gpu[name] for name in gpu if name.endswith(("_bytes", "_busy_ns"))} == {None}
    assert (gpu["device"], gpu["written_bytes_per_day"], gpu["lookup_ns"]) == ("s3", None, None)


# -- age, devices and wear --------------------------------------------------------------------------


def test_retention_is_the_age_of_what_was_evicted() -> None:
    found = records([[1], [2], [3], [4]], [0, 1, 3, 9], tiers=[tier("gpu", capacity=2)])
    # 1 leaves at 3 s, 2 at 9 s, 3 s and 8 s old.
    kept = found["gpu"]["retention"]
    assert (kept["evicted_blocks"], kept["mean_s"], kept["max_s"]) == (2, 5.5, 8.0)
    assert 3 <= kept["median_at_most_s"] < 6
    never = records([[1]], tiers=[tier("gpu", capacity=2)])["gpu"]["retention"]
    assert never == {"evicted_blocks": 0, "mean_s": None, "median_at_most_s": None, "max_s": None}


def test_devices_are_busy_for_their_bytes_and_wear_for_their_writes() -> None:
    device = {"name": "s3", "read_gb_per_s": 1, "write_gb_per_s": 0.5, "lookup_us": 10}
    tiers = [tier("ssd", capacity=10, device=device)]
    ssd = records([[1, 2], [1, 2]], [0, 43_200], tiers=tiers, block_bytes="1MB", prefill_tokens_per_s=10**7)["ssd"]
    assert (ssd["read_bytes"], ssd["written_bytes"]) == (2_000_000, 2_000_000)
    assert (ssd["read_busy_ns"], ssd["write_busy_ns"], ssd["lookup_ns"]) == (2_000_000, 4_000_000, 20_000)
    assert ssd["written_bytes_per_day"] == 4_000_000
    assert ssd["drive_writes_per_day"] == pytest.approx(0.4)
    # A token is 100 kB and takes 100 µs to load at 1 GB/s; computing one takes 100 ns.
    assert ssd["break_even_tokens"] is None


def test_wear_needs_a_duration() -> None:
    ssd = records([[1], [2]], [5, 5], tiers=[tier("ssd", capacity=10)], block_bytes=10)["ssd"]
    assert (ssd["written_bytes_per_day"], ssd["drive_writes_per_day"]) == (None, None)


# -- flags and causes ------------------------------------------------------------------------------


def test_flags_tell_idle_tiers_from_tiers_that_are_only_written() -> None:
    tiers = [tier("gpu", capacity=5), tier("cpu", capacity=5), tier("ssd", capacity=5, write="none")]
    found = records([[1, 2], [1, 2]], tiers=tiers)
    assert {name: record["flags"] for name, record in found.items()} == {
        "gpu": [],
        "cpu": ["write-only"],
        "ssd": ["idle"],
    }


@pytest.mark.parametrize(
    ("hits", "reuse", "causes"),
    [
        ([50, 0], 60, [None, "served above"]),
        ([20, 0], 60, [None, "cycling"]),
        ([0, 0], 60, ["cycling", "cycling"]),
        ([0, 0], 9, ["no reuse", "no reuse"]),
        ([30, 0, 0], 60, [None, "served above", "served above"]),
        ([10, 20, 0], 60, [None, None, "served above"]),
    ],
)
def test_the_cause_is_the_one_that_explains_most(hits: list[int], reuse: int, causes: list[str | None]) -> None:
    totals = Totals(1)
    totals.counts |= {"cacheable_blocks": 100, "infinite_hit_blocks": reuse}
    for has_seen in (True, False):
        tiers: list[dict[str, Any]] = [{"hit_blocks": count} for count in hits]
        explain_tiers(tiers, totals, has_seen=has_seen)
        assert [each["cause"] for each in tiers] == (causes if has_seen else [None] * len(hits))


def test_without_a_seen_set_no_cause_is_told() -> None:
    assert records([[1], [2]], tiers=[tier("gpu", capacity=1)], seen="off")["gpu"]["cause"] is None
    assert records([[1], [2]], tiers=[tier("gpu", capacity=1)])["gpu"]["cause"] == "no reuse"


# -- with more than a block a chunk ------------------------------------------------------------------


def test_chunks_are_told_in_blocks() -> None:
    found = records([[1, 2, 3, 4, 5]] * 2, tiers=[tier("cpu", capacity=8, chunk=2)], block_bytes=10)["cpu"]
    assert (found["computed_blocks"], found["written_bytes"], found["used_blocks"]) == (4, 40, 4)
    assert (found["hit_blocks"], found["read_blocks"], found["read_bytes"], found["hit_tokens"]) == (4, 4, 40, 40)


def test_a_part_of_a_chunk_that_is_above_overlaps() -> None:
    tiers = [tier("gpu", capacity=3), tier("cpu", capacity=8, chunk=2)]
    found = records([[1, 2, 3, 4], [1, 2, 3, 4]], tiers=tiers)
    assert [found[name]["hit_blocks"] for name in ("gpu", "cpu")] == [3, 1]
    assert (found["cpu"]["overlap_blocks"], found["cpu"]["read_blocks"]) == (1, 2)


def test_a_matrix_and_a_curve_refuse_a_stack() -> None:
    for run in (kvbench.replay_matrix, kvbench.curve):
        with pytest.raises(ConfigError, match=r"one tier|no effect on a curve"):
            run("traces/chat.arrow", tiers=[{"name": "gpu", "capacity": 5}])


def test_a_configuration_with_a_preset_takes_the_preset_s_settings() -> None:
    result = kvbench.replay("traces/chat.arrow", config=kvbench.RunConfig(preset="opal", block_bytes="2MiB"))
    assert result.manifest["config"]["placement"] == "spill"


def test_the_manifest_tells_files_of_one_name_apart(tmp_path: Path) -> None:
    def digest(share: float) -> object:
        plan = tmp_path / "faults.toml"
        plan.write_text(f'[[fault]]\nkind = "get"\ntier = "gpu"\nshare = {share}\n')
        tiers = [{"name": "gpu", "capacity": 50}]
        return kvbench.replay("traces/chat.arrow", tiers=tiers, faults=str(plan)).manifest["files"]["faults"]

    assert digest(0.5) != digest(0.25)
