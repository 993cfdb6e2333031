"""What users of KV caches report, as tests named after their ids: sections D and E.

D04 is in test_adaptive.py, D09 in test_invariants.py, D05 and D06 in
test_python_policy.py and test_plugins.py, D10 is a benchmark. E12, E15 and F01 to F08 are beside the
code that they are about, in tests/serving. E01, E02 and the bandwidth of E13 need a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.errors import ConfigError
from kvbench.trace.schema import TraceFacts
from tests.stacks import SECOND_NS, Rig, keys, tier

MakeTrace = Callable[..., pa.Table]
CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"


def records(result: kvbench.ReplayResult) -> dict[str, dict[str, Any]]:
    return {record["tier"]: record for record in result.summary["tiers"]}


def column(result: kvbench.ReplayResult, name: str) -> list[Any]:
    assert result.requests is not None
    values = result.requests[name].to_pylist()
    assert isinstance(values, list)
    return values


def replay(trace: pa.Table | Path, **settings: Any) -> kvbench.ReplayResult:
    return kvbench.replay(trace, keep_requests=True, **settings)


# -- D: eviction and quotas ------------------------------------------------------------------------


@pytest.mark.parametrize(("shared", "hit"), [(0, 0), (6, 12), (3, 6), (10, 12)])
def test_B05_tenants_share_as_many_leading_blocks_as_they_are_let(shared: int, hit: int) -> None:
    """Three tenants, prompts of 10 blocks of which 6 are the same."""
    rows = [[*range(6), *range(100 * tenant, 100 * tenant + 4)] for tenant in range(1, 4)]
    table = pa.table(
        {
            "arrival_ns": pa.array(range(3), pa.int64()),
            "input_tokens": pa.array([100] * 3, pa.uint32()),
            "block_ids": pa.array(rows, pa.list_(pa.uint64())),
            "tenant": pa.array(["x", "y", "z"]),
        }
    ).replace_schema_metadata(TraceFacts(block_tokens=10).to_metadata())
    for cache in ({"capacity": 100}, {"tiers": [{"name": "gpu", "capacity": 100}]}):
        assert kvbench.replay(table, shared_blocks=shared, **cache).summary["blocks"]["hit"] == hit


def test_D02_requests_are_evicted_one_after_the_other_each_from_its_tail() -> None:
    rig = Rig(tiers=[tier("gpu", capacity=4)])
    rig.serve([1, 2])
    rig.serve([11, 12])
    rig.serve([21, 22, 23, 24])
    assert rig.victims("gpu") == [2, 1, 12, 11]


@pytest.mark.parametrize(("policy", "kept"), [("lfu", True), ("slru", True), ("lru", False)])
def test_D03_a_scan_flushes_a_hot_block_from_lru_only(make_trace: MakeTrace, policy: str, kept: bool) -> None:
    rows = [[1]] * 5 + [[key] for key in range(10, 15)] + [[1]]
    for settings in ({"capacity": 3, "policy": policy}, {"tiers": [tier("gpu", capacity=3, policy=policy)]}):
        assert column(replay(make_trace(rows), **settings), "hit_blocks")[-1] == int(kept)


def test_D07_an_emptied_slot_is_used_before_anything_is_evicted() -> None:
    rig = Rig(placement="exclusive", tiers=[tier("gpu", capacity=1), tier("cpu", capacity=2)])
    for key in ("A", "B", "X"):
        rig.serve([ord(key)])
    assert rig.held("cpu") == {ord("A"), ord("B")}
    since = rig.log.size
    assert rig.serve([ord("A")]) == 1
    assert rig.held("cpu") == {ord("B"), ord("X")}
    assert [kind for kind, _, _ in rig.events(since)] == ["MOVE", "MOVE"]


@pytest.mark.parametrize("placement", ["inclusive", "exclusive", "spill"])
def test_D08_pinned_used_and_capacity_are_in_order_after_every_request(placement: str, tmp_path: Path) -> None:
    timeline = str(tmp_path / "timeline.parquet")
    tiers = [tier("gpu", capacity=40), tier("cpu", capacity=120)]
    kvbench.replay(CHAT, placement=placement, tiers=tiers, timeline=timeline, timeline_every=1)
    rows = pq.read_table(timeline).to_pylist()
    assert len(rows) == 2 * 1_952
    capacities = {"gpu": 40, "cpu": 120}
    for row in rows:
        pinned, reusable = row["pinned_blocks"], row["reusable_blocks"]
        assert 0 <= pinned <= pinned + reusable <= capacities[row["tier"]]


def test_D09_an_infinite_cache_hits_all_but_first_uses() -> None:
    blocks = kvbench.replay(CHAT, tails="drop", tiers=[tier("gpu")]).summary["blocks"]
    cacheable = blocks["asked"] - kvbench.replay(CHAT).summary["misses"]["partial"]
    assert blocks["hit"] == blocks["infinite_hit"] == cacheable - blocks["distinct"]


def test_D09_hits_never_fall_with_capacity_and_no_policy_beats_the_bound() -> None:
    hits = []
    for capacity in (1, 20, 100, 500, 2_000, 9_466):
        blocks = kvbench.replay(CHAT, tiers=[tier("gpu", capacity=capacity)]).summary["blocks"]
        assert blocks["hit"] <= blocks["belady_hit"] <= blocks["infinite_hit"]
        hits.append(blocks["hit"])
    assert hits == sorted(hits)
    for policy in ("fifo", "lfu", "arc", "sieve", "leaf-lru"):
        blocks = kvbench.replay(CHAT, tiers=[tier("gpu", capacity=500, policy=policy)]).summary["blocks"]
        assert blocks["hit"] <= blocks["belady_hit"]


def noisy_neighbours(make_trace: MakeTrace) -> pa.Table:
    """The quiet tenant asks for two blocks, the noisy one for ten, and the quiet one again."""
    rows = [[1, 2], *([key] for key in range(10, 20)), [1, 2]]
    return make_trace(rows, tenant=pa.array(["quiet", *["noisy"] * 10, "quiet"]))


@pytest.mark.parametrize(("quotas", "hit"), [({"quiet": 2, "noisy": 2}, 2), (None, 0)])
def test_D11_a_tenant_over_its_quota_evicts_its_own(
    make_trace: MakeTrace, quotas: dict[str, int] | None, hit: int
) -> None:
    settings = {} if quotas is None else {"quotas": quotas}
    result = replay(noisy_neighbours(make_trace), tiers=[tier("gpu", capacity=4, **settings)])
    assert column(result, "hit_blocks")[-1] == hit
    assert records(result)["gpu"]["refused_room_blocks"] == 0
    assert records(result)["gpu"]["computed_blocks"] == 14 - hit


def test_D11_quotas_above_the_capacity_are_an_error(make_trace: MakeTrace) -> None:
    tiers = [tier("gpu", capacity=4, quotas={"quiet": 2, "noisy": 3})]
    with pytest.raises(ConfigError, match=r"^tier gpu: quotas of 5 blocks in all are more than its capacity of 4$"):
        kvbench.replay(noisy_neighbours(make_trace), tiers=tiers)


@pytest.mark.parametrize(
    ("mode", "seconds", "times", "hits"),
    [
        ("fixed", 5, [0, 4, 8], [0, 1, 0]),
        ("sliding", 5, [0, 4, 8], [0, 1, 1]),
        ("fixed", 5, [0, 5, 5.000000001], [0, 1, 0]),  # at the very nanosecond it lives, after it not
        ("sliding", 5, [0, 5, 10], [0, 1, 1]),
        ("fixed", 0, [0, 0, 0.000000001], [0, 1, 0]),
        ("sliding", 0, [0, 0, 0.000000001], [0, 1, 0]),
    ],
)
def test_D12_blocks_live_as_long_as_documented(
    make_trace: MakeTrace, mode: str, seconds: float, times: list[float], hits: list[int]
) -> None:
    trace = make_trace([[1]] * len(times))
    arrivals = pa.array([round(time * SECOND_NS) for time in times], pa.int64())
    trace = trace.set_column(0, trace.schema.field("arrival_ns"), arrivals)
    policy = {"name": "ttl", "seconds": seconds, "mode": mode}
    assert column(replay(trace, tiers=[tier("gpu", capacity=3, policy=policy)]), "hit_blocks") == hits
    assert column(replay(trace, capacity=3, policy=policy), "hit_blocks") == hits


@pytest.mark.parametrize("touch_on", ["request", "hit", "lookup", "never"])
def test_D13_a_probe_renews_nothing(touch_on: str) -> None:
    def victims(probe: bool) -> list[int]:
        rig = Rig(tiers=[tier("gpu", capacity=3, touch_on=touch_on)])
        rig.serve([1])
        rig.serve([2])
        rig.serve([3])
        for _ in range(5 * probe):
            assert rig.stack.probe(keys([1])) == 1
        rig.serve([4])
        return rig.victims("gpu")

    assert victims(probe=True) == victims(probe=False) == [1]


def test_D13_where_all_is_pinned_a_put_is_refused_and_counted() -> None:
    rig = Rig(tiers=[tier("gpu", capacity=2)])
    rig.serve([1, 2])
    gpu = rig.tiers["gpu"]
    assert gpu.pin(keys([1, 2])) == 2
    assert rig.serve([3, 4]) == 0
    assert rig.held("gpu") == {1, 2}
    assert (gpu.counters()["refused_room_chunks"], gpu.counters()["evicted_room_chunks"]) == (2, 0)
    gpu.unpin(keys([1, 2]))
    rig.serve([3, 4])
    assert rig.held("gpu") == {3, 4}


def test_D14_a_promised_hit_stays_until_it_is_used() -> None:
    """What comes down to make room for a hit does not push the rest of that hit out."""
    rig = Rig(placement="exclusive", tiers=[tier("gpu", capacity=2), tier("cpu", capacity=2)])
    rig.serve([1, 2])
    rig.serve([3, 4])
    assert (rig.held("gpu"), rig.held("cpu")) == ({3, 4}, {1, 2})
    assert rig.serve([1, 2]) == 2
    assert (rig.held("gpu"), rig.held("cpu")) == ({1, 2}, {3, 4})
    for store in rig.tiers.values():
        assert (store.counters()["lost_blocks"], store.pinned) == (0, 0)


# -- E: tiers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", ["through", "none"])
@pytest.mark.parametrize("promotion", ["copy", "none", "temporary"])
def test_E04_without_pressure_a_cpu_tier_changes_no_gpu_hit(write: str, promotion: str) -> None:
    alone = replay(CHAT, tiers=[tier("gpu", capacity=10_000)])
    tiers = [tier("gpu", capacity=10_000, promotion=promotion), tier("cpu", capacity=10_000, write=write)]
    both = replay(CHAT, tiers=tiers)
    assert column(both, "hit_gpu_blocks") == column(alone, "hit_blocks")
    assert both.rates == alone.rates
    assert records(both)["gpu"]["evicted_room_blocks"] == 0


def test_E06_bytes_are_whole_blocks_and_the_rest_is_told(make_trace: MakeTrace) -> None:
    tiers = [tier("cpu", capacity="10000000B")]
    cpu = records(kvbench.replay(make_trace([[1, 2, 3]]), tiers=tiers, block_bytes=2_097_152))["cpu"]
    assert (cpu["capacity_blocks"], cpu["capacity_bytes"]) == (4, 4 * 2_097_152)
    assert cpu["unused_bytes"] == 10_000_000 - 4 * 2_097_152
    assert cpu["used_blocks"] == 3


@pytest.mark.parametrize("capacity", ["0B", "2097151B", 0])
def test_E06_a_tier_below_one_block_is_an_error(make_trace: MakeTrace, capacity: str | int) -> None:
    with pytest.raises(ConfigError, match=r"^tier cpu: capacity = .*(smaller than one block|at least one block)"):
        kvbench.replay(make_trace([[1]]), tiers=[tier("cpu", capacity=capacity)], block_bytes=2_097_152)


@pytest.mark.parametrize(("again", "used"), [(True, 2_000), (False, 0)])
def test_E07_promoted_bytes_stand_beside_those_that_were_used(make_trace: MakeTrace, again: bool, used: int) -> None:
    """A request promotes what it is about to use itself: used are those that a later one found there."""
    rows = [[1, 2], [3, 4], [1, 2], [1, 2] if again else [5, 6]]
    tiers = [tier("gpu", capacity=2), tier("cpu", capacity=20)]
    gpu = records(kvbench.replay(make_trace(rows), tiers=tiers, block_bytes="1kB"))["gpu"]
    assert (gpu["promoted_bytes"], gpu["promoted_used_bytes"]) == (2_000, used)


def test_E08_a_failed_load_is_a_miss_that_is_computed_again(make_trace: MakeTrace, tmp_path: Path) -> None:
    """The index forgets the block, the tries are bounded, and all of it is counted."""
    plan = tmp_path / "faults.toml"
    plan.write_text('[[fault]]\nkind = "get"\ntier = "cpu"\nfrom_request = 1\nto_request = 2\n')
    tiers = [tier("gpu", capacity=4, write="none", promotion="none"), tier("cpu", capacity=10)]
    result = replay(make_trace([[1, 2, 3]] * 3), tiers=tiers, workers=2, faults=str(plan), retries=3)
    assert len(set(column(result, "worker"))) == 1
    assert column(result, "hit_blocks") == [0, 0, 3]
    assert column(result, "predicted_blocks") == [0, 3, 3]
    cpu = records(result)["cpu"]
    assert (cpu["failed_gets"], cpu["retries"], cpu["lost_blocks"]) == (1, 3, 3)
    assert (cpu["dropped_faulty_blocks"], cpu["computed_blocks"]) == (1, 4)


@pytest.mark.parametrize(("promotion", "third"), [("copy", "dram"), ("none", "ssd")])
def test_E09_an_ssd_hit_is_in_dram_the_next_time_if_it_is_promoted(promotion: str, third: str) -> None:
    rig = Rig(tiers=[tier("dram", capacity=2, promotion=promotion), tier("ssd", capacity=20)])
    rig.serve([1, 2])
    rig.serve([3, 4])
    assert rig.serve([1, 2]) == 2
    assert rig.hits() == {"ssd": 2}
    assert rig.serve([1, 2]) == 2
    assert rig.hits() == {third: 2}


def test_E10_pinned_reusable_and_free_are_the_capacity_at_every_sample(tmp_path: Path) -> None:
    timeline = str(tmp_path / "timeline.parquet")
    tiers = [tier("gpu", capacity=60), tier("cpu", capacity=400, chunk=4), tier("ssd", chunk=8)]
    kvbench.replay(CHAT, tiers=tiers, timeline=timeline, timeline_every=100)
    rows = pq.read_table(timeline).to_pylist()
    assert {row["tier"] for row in rows} == {"gpu", "cpu", "ssd"}
    for row in rows:
        held = row["pinned_blocks"] + row["reusable_blocks"]
        if row["tier"] == "ssd":
            assert row["free_blocks"] is None
        else:
            assert held + row["free_blocks"] == {"gpu": 60, "cpu": 400}[row["tier"]]


def test_E11_the_second_request_stores_all_its_blocks_at_threshold_two(make_trace: MakeTrace) -> None:
    """They are counted as they are offered, also behind the first miss."""
    tiers = [tier("gpu", capacity=1), tier("cpu", capacity=10, admission={"name": "min-count", "n": 2})]
    result = replay(make_trace([[1, 2, 3]] * 2), tiers=tiers)
    cpu = records(result)["cpu"]
    # One block is on the GPU at the second request, and so it is not offered again.
    assert column(result, "hit_blocks") == [0, 1]
    assert (cpu["refused_admission_blocks"], cpu["computed_blocks"]) == (3, 2)
    alone = replay(make_trace([[1, 2, 3]] * 2), tiers=[tiers[1]])
    assert records(alone)["cpu"]["refused_admission_blocks"] == records(alone)["cpu"]["computed_blocks"] == 3
    assert alone.summary["blocks"]["resident_at_end"] == 3


def test_E13_what_one_node_stored_another_finds_in_the_shared_tier_only(make_trace: MakeTrace) -> None:
    tiers = [tier("nvme", capacity=10, scope="host"), tier("dfs", capacity=10, scope="cluster")]
    settings = {"workers": 4, "workers_per_host": 2, "router": "round-robin"}
    result = replay(make_trace([[1, 2]] * 4), tiers=tiers, **settings)
    assert column(result, "worker") == [0, 1, 2, 3]
    assert column(result, "hit_nvme_blocks") == [0, 2, 0, 2]
    assert column(result, "hit_dfs_blocks") == [0, 0, 2, 0]
    assert {name: record["stores"] for name, record in records(result).items()} == {"nvme": 2, "dfs": 1}


LOOP = [[key] for key in range(6)] * 2


def test_E14_a_loop_larger_than_the_cache_hits_under_opt_only(make_trace: MakeTrace) -> None:
    lru = replay(make_trace(LOOP), belady="on", tiers=[tier("gpu", capacity=4)])
    assert (lru.summary["blocks"]["hit"], lru.summary["blocks"]["belady_hit"]) == (0, 4)
    assert records(lru)["gpu"]["cause"] == "cycling"
    opt = replay(make_trace(LOOP), tiers=[tier("gpu", capacity=4, policy="belady")])
    assert opt.summary["blocks"]["hit"] == 4
    assert records(opt)["gpu"]["cause"] is None


@pytest.mark.parametrize(
    ("rows", "gpu", "cause"),
    [
        ([[key] for key in range(12)], 4, "no reuse"),
        (LOOP, 6, "served above"),
        (LOOP, 1, "cycling"),
    ],
)
def test_E14_the_report_names_why_a_tier_gave_nothing(
    make_trace: MakeTrace, rows: list[list[int]], gpu: int, cause: str
) -> None:
    tiers = [tier("gpu", capacity=gpu, promotion="none"), tier("cpu", capacity=4), tier("ssd", write="none")]
    found = records(replay(make_trace(rows), tiers=tiers))
    assert (found["cpu"]["hit_blocks"], found["cpu"]["cause"]) == (0, cause)
    assert found["cpu"]["flags"] == ["write-only"]
    assert found["ssd"]["flags"] == ["idle"]


def test_E16_a_capacity_is_that_of_its_scope_and_totals_are_told() -> None:
    """50 GB for each of 8 ranks are 400 GB a host."""
    settings: dict[str, Any] = {"model": "Llama-3.1-70B", "tp": 8, "workers": 2}
    found = {}
    for scope in ("rank", "worker", "cluster"):
        cpu = records(kvbench.replay(CHAT, tiers=[tier("cpu", capacity="50GB", scope=scope)], **settings))["cpu"]
        found[scope] = cpu
        assert cpu["scope"] == scope
        assert cpu["capacity_bytes"] + cpu["unused_bytes"] == 50 * 10**9
        assert cpu["all_stores_bytes"] == cpu["stores"] * cpu["capacity_bytes"]
    assert [found[scope]["stores"] for scope in found] == [16, 2, 1]
    assert [found[scope]["host_stores"] for scope in found] == [8, 1, None]
    # A rank holds an eighth of each token's KV.
    tokens = [found[scope]["capacity_tokens"] for scope in found]
    assert tokens[0] == 50 * 10**9 // (64 * 327_680 // 8) * 64
    assert tokens[1] == tokens[2] == 50 * 10**9 // (64 * 327_680) * 64


def test_E17_only_what_every_rank_holds_is_of_use() -> None:
    rig = Rig(tp=2, tiers=[tier("gpu", capacity=10, scope="rank")])
    first, second = rig.core.stores[0]
    rig.serve(range(5))
    assert second.remove(keys([3, 4])) == 2
    assert (first.used, second.used) == (5, 3)
    assert rig.stack.probe(keys(range(5))) == 3
    assert rig.serve(range(5)) == 3
    assert set(first.residents()) == set(second.residents()) == set(range(5))
    assert rig.serve(range(5)) == 5


def test_E18_a_tier_that_is_written_and_never_read_is_flagged(make_trace: MakeTrace) -> None:
    tiers = [tier("gpu", capacity=4), tier("ssd", capacity=4)]
    found = records(kvbench.replay(make_trace([[1, 2], [1, 2]]), tiers=tiers))
    assert found["ssd"]["written_blocks"] == 2
    assert (found["gpu"]["flags"], found["ssd"]["flags"]) == ([], ["write-only"])
    found = records(
        kvbench.replay(make_trace([[1, 2], [3, 4], [5, 6], [1, 2]]), tiers=[tier("gpu", capacity=2), tiers[1]])
    )
    assert found["ssd"]["hit_blocks"] == 0
    found = records(kvbench.replay(make_trace([[1, 2], [3, 4], [1, 2]]), tiers=[tier("gpu", capacity=2), tiers[1]]))
    assert (found["ssd"]["hit_blocks"], found["ssd"]["flags"]) == (2, [])
