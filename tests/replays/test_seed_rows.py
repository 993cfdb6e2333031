"""What the predecessor's tiers do, row by row: its rules under preset ``opal``, and never its defects.

Rows OP-20 to OP-35 and BUG-02 to BUG-17.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.cache.fold import Fold
from kvbench.errors import ConfigError
from kvbench.serving.devices import make_device
from kvbench.testing.strategies import requests
from tests.stacks import Rig, keys, tier

MakeTrace = Callable[..., pa.Table]
CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"


def opal(cpu: int, nvme: int, **run: Any) -> Rig:
    """Preset opal with tiers of these sizes in chunks."""
    return Rig(preset="opal", tiers=[tier("cpu", capacity=cpu), tier("nvme", capacity=nvme)], **run)


def records(result: kvbench.ReplayResult) -> dict[str, dict[str, Any]]:
    return {record["tier"]: record for record in result.summary["tiers"]}


def hits(result: kvbench.ReplayResult) -> list[int]:
    assert result.requests is not None
    found = result.requests["hit_blocks"].to_pylist()
    assert isinstance(found, list)
    return found


# -- tiers and their accounts --------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
def test_OP_20_any_number_of_tiers_with_any_names(make_trace: MakeTrace, count: int) -> None:
    names = ["shelf", "GPU 7", "ötzi", "z"][:count]
    tiers = [tier(name, capacity=2) for name in names]
    result = kvbench.replay(make_trace([[*range(8)]] * 2), placement="spill", tiers=tiers, keep_requests=True)
    assert list(records(result)) == names
    assert hits(result) == [0, 2 * count]


def test_OP_20_without_a_tier_nothing_hits(make_trace: MakeTrace) -> None:
    result = kvbench.replay(make_trace([[*range(8)]] * 2), tiers=[], keep_requests=True)
    assert result.summary["tiers"] == []
    assert hits(result) == [0, 0]


def test_OP_31_chunks_of_several_blocks_spill_as_wholes(make_trace: MakeTrace) -> None:
    rows = [[*range(4)], [*range(10)], [*range(10)]]
    tiers = [tier("cpu", capacity=8, chunk=2), tier("nvme", capacity=100, chunk=2)]
    result = kvbench.replay(make_trace(rows), placement="spill", tiers=tiers, keep_requests=True)
    assert hits(result) == [0, 4, 10]


@settings(deadline=None, max_examples=50)
@given(asked=requests(max_requests=40), cpu=st.integers(1, 8), nvme=st.integers(1, 12), spill=st.booleans())
def test_OP_21_what_is_charged_is_what_is_held(asked: list[list[int]], cpu: int, nvme: int, spill: bool) -> None:
    """After every step, also by the log; the predecessor's charge is a counter on the device."""
    tiers = [tier("cpu", capacity=cpu), tier("nvme", capacity=nvme)]
    rig = Rig(preset="opal", tiers=tiers) if spill else Rig(placement="exclusive", tiers=tiers)
    for request in asked:
        rig.serve(request)
        for store in rig.tiers.values():
            store.verify()
            assert store.used == len(store.residents())
            assert store.capacity is not None
            assert 0 <= store.pinned <= store.used <= store.capacity
            moved_in = store.counters()["written_chunks"]
            left = ("evicted_room_chunks", "evicted_watermark_chunks", "moved_up_chunks", "dropped_faulty_chunks")
            assert store.used == moved_in - sum(store.counters()[name] for name in left)


@pytest.mark.parametrize("length", [1, 10])
def test_OP_22_a_lookup_of_many_keys_is_one_round_trip(length: int) -> None:
    rig = Rig(tiers=[tier("cpu", capacity=20), tier("nvme", capacity=20)])
    rig.serve(range(length))
    rig.serve(range(length))
    assert [store.counters()["lookup_operations"] for store in rig.tiers.values()] == [2, 2]


def test_OP_22_the_cost_of_a_lookup_is_a_figure_of_the_device(make_trace: MakeTrace) -> None:
    def lookup_ns(**device: Any) -> int:
        tiers = [tier("cpu", capacity=4, device={"name": "opal-cpu", **device})]
        result = kvbench.replay(make_trace([[1, 2], [1, 2, 3]]), tiers=tiers, block_bytes=1_000)
        found = records(result)["cpu"]["lookup_ns"]
        assert isinstance(found, int)
        return found

    assert lookup_ns(lookup_us=0) == 0
    assert lookup_ns(lookup_us=7) == 2 * 7_000


# -- the prefix ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("walk", "hit", "credit"), [("any", 4, {"cpu": 2, "nvme": 2}), ("once", 1, {"nvme": 1})])
def test_BUG_08_a_prefix_may_change_tiers(walk: str, hit: int, credit: dict[str, int]) -> None:
    """OP-23: k1 and k3 are in the CPU, k0 and k2 on NVMe. One pass, as the predecessor goes, finds one."""
    rig = opal(2, 10, walk=walk)
    rig.serve([1, 3])
    rig.serve([0, 2])
    assert (rig.held("cpu"), rig.held("nvme")) == ({1, 3}, {0, 2})
    assert rig.stack.probe(keys(range(4))) == hit
    assert rig.hits() == credit


def test_OP_23_each_chunk_is_credited_to_the_fastest_tier_that_has_it() -> None:
    rig = Rig(tiers=[tier("cpu", capacity=9), tier("nvme", capacity=9), tier("dfs", capacity=9)])
    rig.place({"cpu": [1, 4], "nvme": [0, 1, 3], "dfs": [0, 1, 2, 3, 4]}, range(6))
    assert rig.serve(range(6)) == 5
    assert rig.stack.last_credit == [1, 0, 2, 1, 0]


HELD = st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=3)


@settings(deadline=None, max_examples=100)
@given(held=HELD, walk=st.sampled_from(["any", "once"]))
def test_OP_24_nothing_after_a_gap_counts(held: list[set[int]], walk: str) -> None:
    names = [f"t{level}" for level in range(len(held))]
    settings = {"walk": walk} if len(held) > 1 else {}
    rig = Rig(tiers=[tier(name, capacity=20) for name in names], **settings)
    rig.place(dict(zip(names, held, strict=True)), range(10))
    expected = 0
    if walk == "any" or len(held) == 1:
        while expected < 10 and any(expected in each for each in held):
            expected += 1
    else:
        for each in held:
            while expected in each:
                expected += 1
    assert rig.serve(range(10)) == expected


def test_OP_25_the_tiers_share_the_hit_tokens_between_them() -> None:
    tiers = [tier("gpu", capacity=150), tier("cpu", capacity=400), tier("nvme", capacity=900)]
    result = kvbench.replay(CHAT, tiers=tiers)
    parts = [record["hit_tokens"] for record in result.summary["tiers"]]
    assert all(parts)
    assert sum(parts) == sum(worker["hit_tokens"] for worker in result.summary["workers"]["each"])


def test_OP_25_a_tier_of_larger_chunks_begins_with_the_chunk_of_the_first_missing_block(make_trace: MakeTrace) -> None:
    """LM-29 in blocks of a sixteenth of a chunk: 18 are on the GPU, two chunks in the CPU; of the
    second one 14 blocks are needed, and 2 overlap."""
    prompt = [*range(32)]
    trace = make_trace([prompt, [*range(100, 114)], prompt])  # the second pushes 14 blocks off the GPU
    tiers = [tier("gpu", capacity=32), tier("cpu", capacity=96, chunk=16)]
    result = kvbench.replay(trace, tiers=tiers, keep_requests=True)
    assert result.requests is not None
    last = result.requests.slice(2).to_pylist()[0]
    assert (last["hit_gpu_blocks"], last["hit_cpu_blocks"], last["overlap_blocks"]) == (18, 14, 2)


def test_OP_26_a_shorter_prompt_has_the_chunks_of_the_longer_one() -> None:
    """1,000 tokens make 3 full chunks of 256; 700 of them match 2, and the predecessor's third, new
    chunk of what is left is none."""
    tokens = [*range(1_000)]
    rows = [tokens, tokens[:700]]
    trace = pa.table(
        {
            "arrival_ns": pa.array([0, 1], pa.int64()),
            "input_tokens": pa.array([1_000, 700], pa.uint32()),
            "token_ids": pa.array(rows, pa.list_(pa.uint32())),
        }
    )
    result = kvbench.replay(trace, block_tokens=256, tiers=[tier("cpu", capacity=10)], keep_requests=True)
    assert hits(result) == [0, 2]
    assert records(result)["cpu"]["hit_tokens"] == 512
    assert records(result)["cpu"]["used_blocks"] == 3


# -- operations and faults -----------------------------------------------------------------------


@pytest.mark.parametrize("preset", [True, False], ids=["opal", "default"])
def test_OP_27_operations_of_a_hit_chunk(make_trace: MakeTrace, preset: bool) -> None:
    """Four presence tests and one read each in the predecessor; here one of each for a tier's batch."""
    trace = make_trace([[*range(10)]] * 2)
    tiers = [tier("cpu", capacity=4), tier("nvme", capacity=20)]
    chosen = {"preset": "opal"} if preset else {"placement": "spill"}
    result = records(kvbench.replay(trace, tiers=tiers, **chosen))
    assert [result[name]["hit_blocks"] for name in ("cpu", "nvme")] == [4, 6]
    operations = [result[name]["operations_per_hit_chunk"] for name in ("cpu", "nvme")]
    assert operations == ([5.0, 5.0] if preset else [2 / 4, 2 / 6])
    assert [result[name]["read_operations"] for name in ("cpu", "nvme")] == ([4, 6] if preset else [1, 1])


@given(
    computed=st.integers(0, 200),
    held=st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=3),
    block_tokens=st.sampled_from([1, 16, 20]),
)
def test_OP_25_a_lookup_goes_on_from_what_is_computed_already(
    computed: int, held: list[set[int]], block_tokens: int
) -> None:
    """Chunks that end at or before the computed offset are not looked for; the offset need not be a
    multiple of a chunk, and the answer is the offset up to which the prefix is known."""
    names = [f"t{level}" for level in range(len(held))]
    rig = Rig(tiers=[tier(name, capacity=20) for name in names])
    rig.place(dict(zip(names, held, strict=True)), range(12))
    skip = min(computed // block_tokens, 12)
    expected = skip
    while expected < 12 and any(expected in each for each in held):
        expected += 1
    assert rig.stack.probe(keys(range(12)), skip=skip) == expected
    credit = rig.stack.last_credit
    assert credit[:skip] == [-1] * skip
    assert all(block in held[level] for block, level in enumerate(credit) if level >= 0)


def test_OP_26_a_cut_selects_chunks_of_the_uncut_chain() -> None:
    """700 of 1,000 tokens in chunks of 256 are, rounded down, the first two chunks of the whole prompt: 512
    tokens; nothing is chunked again."""
    rig = Rig(tiers=[tier("cpu", capacity=10)])
    chain = range(1_000 // 256)
    rig.serve(chain)
    cut = keys(chain)[: 700 // 256]
    assert rig.stack.probe(cut) * 256 == 512


def test_OP_29_each_tier_has_a_link_of_its_own_in_each_direction() -> None:
    devices = ("cpu-pcie4", "nvme-gen4")
    tiers = [tier("gpu", capacity=150), *(tier(f"t{at}", capacity=400, device=name) for at, name in enumerate(devices))]
    found = records(kvbench.replay(CHAT, tiers=tiers, block_bytes="1MiB"))
    for at, name in enumerate(devices):
        record, device = found[f"t{at}"], make_device(name)
        assert record["read_busy_ns"] == device.busy_read_ns(record["read_bytes"])
        assert record["write_busy_ns"] == device.busy_write_ns(record["written_bytes"])
    assert found["gpu"]["read_busy_ns"] is None


def test_OP_28_a_chunk_that_vanishes_before_it_is_read_cuts_the_prefix() -> None:
    """LM-20: also where a faster tier had already promised what comes after it."""
    rig = Rig(tiers=[tier("cpu", capacity=9), tier("nvme", capacity=9)])
    rig.place({"cpu": [0, 1, 3, 4], "nvme": [2]}, range(5))
    rig.tiers["nvme"].set_faults(get_fails=1.0)
    rig.stack.expect_faults()
    assert rig.serve(range(5)) == 2
    assert rig.tiers["nvme"].counters()["failed_gets"] == 1
    assert [store.counters()["lost_blocks"] for store in rig.tiers.values()] == [2, 1]
    for store in rig.tiers.values():
        assert store.pinned == 0
    rig.tiers["nvme"].set_faults()
    assert rig.serve(range(5)) == 5


# -- placement -----------------------------------------------------------------------------------


PLACED = {
    "spill": ({0, 1, 2, 3}, {4, 5, 6, 7, 8, 9, 20, 21}),
    "inclusive": ({0, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7}),
    "exclusive": ({0, 1, 2, 3}, set()),
}


@pytest.mark.parametrize("placement", PLACED)
def test_OP_31_each_placement_puts_chunks_where_it_says(placement: str) -> None:
    """CPU 4, NVMe 8, ten chunks, then six. The first chunk without room ends a tier's part of a batch."""
    tiers = [tier("cpu", capacity=4, policy="keep"), tier("nvme", capacity=8, policy="keep")]
    rig = Rig(placement=placement, tiers=tiers)
    rig.serve(range(10))
    rig.serve(range(20, 26))
    assert (rig.held("cpu"), rig.held("nvme")) == PLACED[placement]


def test_OP_31_a_batch_is_cut_where_the_first_tier_is_full() -> None:
    rig = opal(4, 8)
    rig.serve(range(10))
    assert [store.counters()["written_chunks"] for store in rig.tiers.values()] == [4, 6]
    assert [key for kind, name, key in rig.events() if (kind, name) == ("INSERT", "cpu")] == [0, 1, 2, 3]
    rig.serve(range(20, 26))
    refused = [store.counters()["refused_room_chunks"] for store in rig.tiers.values()]
    assert refused == [0, 4]


def test_OP_31_a_chunk_that_is_there_takes_no_room() -> None:
    rig = opal(3, 8)
    rig.serve([0, 1])
    rig.serve([0, 1, 2, 3])
    assert (rig.held("cpu"), rig.held("nvme")) == ({0, 1, 2}, {3})


def test_OP_32_a_store_that_fails_takes_no_room() -> None:
    rig = opal(4, 8)
    rig.tiers["cpu"].set_faults(put_fails=1.0)
    rig.serve(range(3))
    cpu = rig.tiers["cpu"]
    assert (cpu.used, cpu.counters()["failed_puts"], cpu.counters()["refused_fault_chunks"]) == (0, 3, 3)
    cpu.set_faults()
    rig.serve(range(4))
    assert rig.held("cpu") == {0, 1, 2, 3}


def test_OP_32_a_key_that_two_workers_store_is_charged_once(make_trace: MakeTrace) -> None:
    trace = make_trace([[1, 2, 3]] * 4)
    tiers = [tier("cpu", capacity=2), tier("dfs", capacity=50, scope="cluster")]
    dfs = records(kvbench.replay(trace, workers=2, router="round-robin", tiers=tiers))["dfs"]
    assert (dfs["stores"], dfs["used_blocks"], dfs["written_blocks"]) == (1, 3, 3)


def test_OP_33_keep_never_evicts() -> None:
    rig = opal(2, 3)
    for first in range(0, 100, 10):
        rig.serve(range(first, first + 4))
    assert rig.victims("cpu") == rig.victims("nvme") == []
    assert (rig.held("cpu"), rig.held("nvme")) == ({0, 1}, {2, 3, 10})


@pytest.mark.parametrize("name", ["cpu", "nvme"])
def test_OP_33_remove_pin_and_unpin_are_real_in_every_tier(name: str) -> None:
    """One more chunk than fits evicts exactly one, the policy's victim, and never a pinned one."""
    rig = Rig(tiers=[tier("cpu", capacity=4, policy="fifo"), tier("nvme", capacity=4, policy="fifo")])
    store = rig.tiers[name]
    for key in range(4):
        rig.serve([key])
    rig.serve([10])
    assert rig.victims(name) == [0]
    assert store.pin(keys([1])) == 1
    rig.serve([11])
    assert rig.victims(name) == [0, 2]
    assert store.remove(keys([1])) == 0
    store.unpin(keys([1]))
    assert store.remove(keys([1, 3])) == 2
    assert rig.held(name) == {10, 11}
    assert store.pinned == 0


def test_OP_34_a_watermark_has_its_victims_and_times() -> None:
    """0.8 of 10 down to 0.5, at most every 4 s; requests of two chunks are a second apart."""
    rig = Rig(tiers=[tier("cpu", capacity=10, high=0.8, low=0.5, period_s=4.0)])
    left = []
    for second in range(10):
        since = rig.log.size
        rig.serve([10 * second, 10 * second + 1])
        left.append(rig.victims("cpu", since))
    # Looked at in seconds 0, 4 and 8. At 4 there are 10; at 8 there are 10 again, as 7 was refused one.
    expected: list[list[int]] = [[] for _ in range(10)]
    expected[4] = [1, 0, 11, 10, 21]
    expected[8] = [20, 31, 30, 41, 40]
    assert left == expected
    counts = rig.tiers["cpu"].counters()
    assert (counts["evicted_watermark_chunks"], counts["evicted_room_chunks"]) == (10, 0)
    assert counts["refused_room_chunks"] == 3


@pytest.mark.parametrize("demote", [True, False])
def test_OP_34_a_watermark_demotes_or_drops(demote: bool) -> None:
    below = tier("nvme", capacity=20, write="back" if demote else "none")
    rig = Rig(tiers=[tier("cpu", capacity=10, high=0.8, ratio=0.5), below])
    rig.serve(range(8))
    assert rig.held("cpu") == {0, 1, 2, 3}
    assert rig.held("nvme") == ({4, 5, 6, 7} if demote else set())
    assert rig.victims("cpu") == ([] if demote else [7, 6, 5, 4])


def test_OP_35_a_gb_is_ten_to_the_ninth_and_a_gib_two_to_the_thirtieth(make_trace: MakeTrace) -> None:
    sizes = {}
    for capacity in ("8GB", "8GiB"):
        result = kvbench.replay(make_trace([[1]]), tiers=[tier("cpu", capacity=capacity)], block_bytes=40 * 2**20)
        sizes[capacity] = records(result)["cpu"]["capacity_blocks"]
    assert sizes == {"8GB": 190, "8GiB": 204}


def test_OP_35_the_cpu_of_the_predecessor_holds_204_chunks_of_granite() -> None:
    """40 MiB for 256 tokens, so 8 GiB are 204 chunks or 52,224 tokens."""
    rows = {"arrival_ns": [0], "input_tokens": [512], "block_ids": [[1, 2]]}
    result = kvbench.replay(pa.table(rows), preset="opal", model="granite-3.3-8b", block_tokens=256)
    cpu = records(result)["cpu"]
    assert (cpu["capacity_blocks"], cpu["capacity_tokens"]) == (204, 52_224)
    assert cpu["unused_bytes"] == 8 * 2**30 - 204 * 40 * 2**20


def test_OP_35_no_figure_of_a_tier_is_without_a_unit(make_trace: MakeTrace) -> None:
    result = kvbench.replay(make_trace([[1]]), preset="opal", block_bytes="40MiB")
    numbers = {name for name, value in records(result)["cpu"].items() if isinstance(value, (int, float))}
    units = ("_blocks", "_bytes", "_tokens", "_operations", "_rate", "_ns", "_s", "_per_day", "_gets", "_puts")
    assert {name for name in numbers if not name.endswith(units)} <= {"stores", "host_stores", "retries"}


# -- defects ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["cpu"], ["cpu", "nvme"], ["cpu", "dfs"], ["cpu", "nvme", "dfs"]], ids="-".join)
def test_BUG_02_every_tier_has_its_insert_events(make_trace: MakeTrace, tmp_path: Path, names: list[str]) -> None:
    """162 chunks are 162 events wherever they go; the predecessor sends those of the last tier only."""
    trace = make_trace([[*range(first, first + 9)] for first in range(0, 162, 9)])
    sizes = {"cpu": 50, "nvme": 60, "dfs": 1_000}
    sizes[names[-1]] = 1_000
    events = tmp_path / "events.parquet"
    tiers = [tier(name, capacity=sizes[name], policy="keep") for name in names]
    result = kvbench.replay(trace, placement="spill", tiers=tiers, events=str(events))
    told = Counter(pq.read_table(events)["tier"].to_pylist())
    assert told == {name: records(result)[name]["used_blocks"] for name in names}
    assert sum(told.values()) == 162
    assert set(pq.read_table(events)["kind"].to_pylist()) == {"INSERT"}


def test_BUG_04_what_a_full_tier_holds_is_not_stored_below_it() -> None:
    rig = opal(6, 100)
    rig.serve(range(10))
    rig.tiers["cpu"].remove(keys([0]))
    rig.serve([50])
    assert rig.held("cpu") == {1, 2, 3, 4, 5, 50}  # full
    since = rig.log.size
    rig.serve(range(10))  # nothing hits, and all but the first chunk are there
    assert rig.events(since) == [("INSERT", "nvme", 0)]
    since = rig.log.size
    rig.serve(range(10))
    assert rig.events(since) == []
    assert not rig.held("cpu") & rig.held("nvme")


def test_BUG_05_a_shared_tier_is_one_store(make_trace: MakeTrace) -> None:
    """Worker 0 stores, worker 1 hits; what is held is what is distinct."""
    trace = make_trace([[*range(10)], [*range(10)], [*range(5), *range(20, 30)], [*range(5), *range(20, 30)]])
    tiers = [tier("cpu", capacity=2, policy="keep"), tier("dfs", capacity=100, scope="cluster", policy="keep")]
    result = kvbench.replay(trace, placement="spill", workers=2, router="round-robin", tiers=tiers, keep_requests=True)
    assert result.requests is not None
    assert result.requests["worker"].to_pylist() == [0, 1, 0, 1]
    # Blocks 0 and 1 are in the CPU of worker 0, so worker 1 must compute them before the rest is of use.
    assert hits(result) == [0, 0, 5, 15]
    dfs = records(result)["dfs"]
    assert dfs["used_blocks"] == dfs["written_blocks"] == 18
    assert result.summary["blocks"]["distinct"] == 20


def test_BUG_05_workers_hit_what_another_one_stored(make_trace: MakeTrace) -> None:
    trace = make_trace([[*range(10)]] * 4)
    tiers = [tier("cpu", capacity=4), tier("dfs", capacity=100, scope="cluster")]
    result = kvbench.replay(trace, workers=4, router="round-robin", tiers=tiers, keep_requests=True)
    assert hits(result) == [0, 10, 10, 10]
    assert records(result)["dfs"]["used_blocks"] == result.summary["blocks"]["distinct"] == 10


def test_BUG_14_a_worker_is_a_candidate_until_its_last_copy_is_gone(make_trace: MakeTrace) -> None:
    """OP-44: what the GPU has evicted is still in the CPU, and the router knows."""
    rows = [[0, 1, 2], [0, 5, 6, 7], [0, 1, 2]]
    tiers = [tier("gpu", capacity=4), tier("cpu", capacity=100)]
    result = kvbench.replay(make_trace(rows), workers=3, tiers=tiers, keep_requests=True)
    assert result.requests is not None
    last = result.requests.to_pylist()[2]
    assert records(result)["gpu"]["evicted_room_blocks"] >= 2
    assert (last["predicted_blocks"], last["hit_blocks"], last["hit_cpu_blocks"]) == (3, 3, 2)
    assert len(set(result.requests["worker"].to_pylist())) == 1


def test_BUG_14_a_worker_without_a_copy_is_no_candidate(make_trace: MakeTrace) -> None:
    rows = [[0, 1, 2], [0, 5, 6, 7], [0, 1, 2]]
    tiers = [tier("gpu", capacity=4), tier("cpu", capacity=4)]
    result = kvbench.replay(make_trace(rows), workers=3, tiers=tiers, keep_requests=True)
    assert result.requests is not None
    last = result.requests.to_pylist()[2]
    assert (last["predicted_blocks"], last["hit_blocks"]) == (1, 1)


def chains(count: int) -> list[list[int]]:
    """Prompts of up to six chunks over a few popular chains."""
    random = np.random.default_rng(5)
    asked = zip(random.zipf(1.4, count) % 9, random.integers(1, 7, count), strict=True)
    return [[*range(10 * base, 10 * base + length)] for base, length in asked]


def test_BUG_15_a_demotion_is_charged_once_and_told_of() -> None:
    """At least a thousand of them: one MOVE each, and what is held is what was charged."""
    rig = Rig(placement="exclusive", tiers=[tier("cpu", capacity=8), tier("nvme", capacity=20)])
    for chain in chains(1_500):
        rig.serve(chain)
    cpu, nvme = (store.counters() for store in rig.tiers.values())
    assert nvme["demoted_chunks"] >= 1_000
    moves = Counter(name for kind, name, _ in rig.events() if kind == "MOVE")
    assert moves["nvme"] == nvme["demoted_chunks"] == cpu["moved_down_chunks"]
    assert moves["cpu"] == cpu["promoted_chunks"] == nvme["moved_up_chunks"]
    fold = Fold()
    events = np.frombuffer(rig.log.tobytes(), dtype=_event_type())
    for event in events:
        source = (int(event["source"]), int(event["source_store"])) if event["source_store"] >= 0 else None
        fold.event(
            ("INSERT", "DELETE", "MOVE", "COPY", "CLEAR")[event["kind"]],
            (int(event["tier"]), int(event["store"])),
            int(event["key"]),
            source=source,
            worker=int(event["worker"]),
            sequence=int(event["sequence"]),
        )
    state = dict(fold.keys())
    for level, name in enumerate(rig.tiers):
        assert state[level, 0] == rig.held(name)
        assert rig.tiers[name].used == len(rig.held(name))
        rig.tiers[name].verify()


def _event_type() -> np.dtype[Any]:
    from kvbench.cache.events import EVENT_FIELDS

    return np.dtype(list(EVENT_FIELDS))


def test_BUG_15_reads_refresh_so_lru_is_not_fifo(make_trace: MakeTrace) -> None:
    found = {}
    for policy in ("lru", "fifo"):
        tiers = [tier("cpu", capacity=8, policy=policy), tier("nvme", capacity=20, policy=policy)]
        result = kvbench.replay(make_trace(chains(1_500)), placement="exclusive", tiers=tiers)
        found[policy] = [records(result)[name]["hit_blocks"] for name in ("cpu", "nvme")]
    assert found["lru"][0] > found["fifo"][0]
    rig = Rig(tiers=[tier("cpu", capacity=3)])
    for chain in ([1], [2], [3], [1], [4]):
        rig.serve(chain)
    assert rig.victims("cpu") == [2]


RUN = ("--workers", "2", "--placement", "spill", "--tier", "cpu,capacity=100,policy=keep")
SHARED = ("--tier", "dfs,capacity=9000,scope=cluster,policy=keep", "--json")


def test_BUG_17_nothing_of_a_run_outlives_it() -> None:
    """Two runs in this process, and one in another: a shared tier is empty again each time."""
    tiers = [tier("cpu", capacity=100, policy="keep"), tier("dfs", capacity=9_000, scope="cluster", policy="keep")]
    first, second = (kvbench.replay(CHAT, workers=2, placement="spill", tiers=tiers) for _ in range(2))
    assert first.summary == second.summary
    command = [sys.executable, "-m", "kvbench", "replay", str(CHAT), *RUN, *SHARED]
    other = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert other["summary"] == json.loads(json.dumps(second.summary))


def test_OP_20_a_shared_file_system_needs_several_workers() -> None:
    """With one it would be a tier of its own, which is why preset opal has none."""
    with pytest.raises(ConfigError, match=r"^tier dfs: scope cluster has no effect with one worker; give --workers$"):
        kvbench.replay(CHAT, tiers=[tier("cpu", capacity=10), tier("dfs", scope="cluster")])
