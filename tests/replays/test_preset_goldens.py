"""Golden runs of LMCache and vLLM, under the settings of their presets.

Rows: E-41, E-42, E-63, E-64 of the eviction policies; scenarios of ``golden_lmcache.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.stacks import Rig, keys, tier

CHUNK_BYTES = 8192
CHAINS = {"a": range(100, 106), "b": range(200, 206), "c": range(300, 303)}


def named(names: Iterable[str]) -> list[int]:
    """``a0`` … as keys."""
    return [CHAINS[name[0]][int(name[1:])] for name in names]


def lmcache(cpu: int, disk: int = 1_000, **settings: Any) -> Rig:
    """Preset lmcache with these sizes in chunks; ``settings`` are the CPU's."""
    return Rig(preset="lmcache", tiers=[tier("cpu", capacity=cpu, **settings), tier("disk", capacity=disk)])


def cpu_only(cpu: int, **settings: Any) -> Rig:
    """The CPU of preset lmcache without the disk: nothing is written to it, and so nothing is read."""
    tiers = [tier("cpu", capacity=cpu, **settings), tier("disk", capacity=1_000, write="none")]
    return Rig(preset="lmcache", tiers=tiers)


def order(run: Callable[[], Rig], name: str = "cpu") -> list[int]:
    """What is in a tier after ``run``, in the order in which it would be evicted. Fillers that are
    taken out again push one block out at a time."""
    rig = run()
    capacity, found = rig.tiers[name].capacity, []
    assert capacity is not None
    for count in range(capacity - rig.tiers[name].used + 1, capacity + 1):
        since = rig.log.size
        filler = keys(range(10_000 * count, 10_000 * count + count))
        rig.serve(filler)
        found += rig.victims(name, since)
        for each in rig.tiers.values():
            each.remove(filler)
    return found


@pytest.fixture
def storage(shared: Path) -> list[dict[str, Any]]:
    scenarios = json.loads((shared / "golden/golden_lmcache.json").read_text())["storage_behaviour"]["scenarios"]
    assert isinstance(scenarios, list)
    return scenarios


# -- LMCache in the engine: scenarios 1 to 10 ----------------------------------------------------


def pinned_lookup(rig: Rig, chain: range) -> int:
    """Look a chain up as LMCache does to fetch it: what is found becomes the most recent."""
    hit = rig.stack.probe(keys(chain))
    rig.stack.touch_found()
    return int(hit)


def steps_of(policy: str) -> list[tuple[str, Callable[[Rig], int | None]]]:
    """The operations of scenarios 1 to 4. A store counts what is stored of its 6 or 3 chunks."""

    def store(chain: range) -> Callable[[Rig], int]:
        def run(rig: Rig) -> int:
            rig.serve(chain)
            return len(rig.held("cpu") & set(chain))

        return run

    a, b, c = CHAINS["a"], CHAINS["b"], CHAINS["c"]
    return [
        ("store a (6 chunks)", store(a)),
        ("store b (6 chunks)", store(b)),
        ("lookup a no pin", lambda rig: rig.stack.probe(keys(a))),
        ("lookup b no pin", lambda rig: rig.stack.probe(keys(b))),
        ("lookup b pin+touch, unpin", lambda rig: pinned_lookup(rig, b)),
        ("store c (3 chunks)", store(c)),
        ("lookup b no pin", lambda rig: rig.stack.probe(keys(b))),
    ]


@pytest.mark.parametrize(("number", "policy"), [(0, "lru"), (1, "lfu"), (2, "fifo"), (3, "mru")])
def test_E63_lmcache_cpu_hits_victims_and_order(storage: list[dict[str, Any]], number: int, policy: str) -> None:
    scenario = storage[number]
    assert (scenario["policy"].lower(), scenario["cpu_chunks"]) == (policy, 8)
    operations = steps_of(policy)
    for upto, (step, (name, _)) in enumerate(zip(scenario["steps"], operations, strict=True), 1):
        results: list[int | None] = []

        def run(upto: int = upto, results: list[int | None] = results) -> Rig:
            rig = cpu_only(8, policy=policy)
            results[:] = [operation(rig) for _, operation in operations[:upto]]
            return rig

        golden = named(step["hot_cache_order_after"])
        found = order(run)
        assert step["op"] == name
        assert results[-1] == step["res"], name
        if policy == "lfu":  # its dict has the order of insertion, which says nothing about victims
            assert set(found) == set(golden), name
        else:
            assert found == (golden[::-1] if policy == "mru" else golden), name


def test_E63_a_chain_longer_than_the_cpu_loses_its_tail(storage: list[dict[str, Any]]) -> None:
    """Scenario 5: each round is a pinned lookup and a store of what lies beyond the hit."""
    chain = range(10)
    for rounds, step in enumerate(storage[4]["steps"], 1):
        seen: list[tuple[int, int]] = []

        def run(rounds: int = rounds, seen: list[tuple[int, int]] = seen) -> Rig:
            rig = cpu_only(8)
            seen.clear()
            for _ in range(rounds):
                hit = rig.serve(chain)
                seen.append((hit, len(rig.held("cpu") & set(chain[hit:]))))
            return rig

        assert order(run) == step["order"]
        assert seen[-1] == (step["hit"], step["stored"])


def test_E63_only_what_fits_beside_pinned_chunks_is_stored(storage: list[dict[str, Any]]) -> None:
    """Scenario 6, LM-14: the leading chunks are stored, the rest is refused."""
    scenario = storage[5]
    a, b = CHAINS["a"], CHAINS["b"]

    def run() -> Rig:
        rig = cpu_only(8)
        rig.serve(a)
        pinned_lookup(rig, a)
        rig.tiers["cpu"].pin(keys(a))
        rig.serve(b)
        assert len(rig.held("cpu") & set(b)) == scenario["stored"]
        assert rig.tiers["cpu"].counters()["refused_room_chunks"] == len(b) - scenario["stored"]
        rig.tiers["cpu"].unpin(keys(a))
        return rig

    assert order(run) == named(scenario["order"])


def after(rig: Rig, *chains: range) -> Rig:
    for chain in chains:
        rig.serve(chain)
    return rig


def test_lmcache_writes_through_and_promotes(storage: list[dict[str, Any]]) -> None:
    """Scenario 7, CPU 8 and disk 20 chunks: a get from disk puts chunks into the CPU."""
    steps = storage[6]["steps"]
    a, b = CHAINS["a"], CHAINS["b"]
    for count, step in enumerate(steps[:2], 1):
        assert order(lambda count=count: after(lmcache(8, 20), *[a, b][:count])) == named(step["cpu"])
        assert after(lmcache(8, 20), *[a, b][:count]).held("disk") == set(named(step["disk"]))
    rig = after(lmcache(8, 20), a, b)
    assert rig.stack.probe(keys(a)) == steps[2]["hit"]
    assert rig.hits() == {"disk": steps[2]["mapping"]["LocalDiskBackend"]}
    rig.serve(a)
    assert rig.held("disk") == set(named(steps[5]["disk"]))
    disk = rig.tiers["disk"]
    assert disk.used * CHUNK_BYTES == steps[6]["usage"] == steps[6]["current_cache_size"]
    assert disk.remove(keys([a[0]])) == steps[7]["removed"]
    # LMCache's own current_cache_size stays at 98304 here; that defect is not reproduced.
    assert disk.used * CHUNK_BYTES == steps[7]["usage"]
    # A stored batch reaches LMCache's disk in no fixed order; a's chunks are younger than b's.
    leaves = order(lambda: after(lmcache(8, 20), a, b, a), "disk")
    assert set(leaves[:6]) == set(b)
    assert set(leaves[6:]) == set(a)


def test_lmcache_makes_room_for_all_that_a_get_brings(storage: list[dict[str, Any]]) -> None:
    """Scenario 7: all six chunks that come from disk get room in the CPU, also those two that it holds."""
    golden = next(step for step in storage[6]["steps"] if step["op"] == "after batched_get")
    found = order(lambda: after(lmcache(8, 20), CHAINS["a"], CHAINS["b"], CHAINS["a"]))
    assert found == named(golden["cpu"])


def test_lmcache_reads_tiers_in_one_pass(storage: list[dict[str, Any]]) -> None:
    """Scenario 8, OP-23: CPU {0, 2, 3, 5}, disk {1, 3, 4, 5}."""
    scenario = storage[7]
    held = {"cpu": named(["a0", "a2", "a3", "a5"]), "disk": named(["a1", "a3", "a4", "a5"])}
    rig = lmcache(8, 20)
    rig.place(held, CHAINS["a"])
    assert rig.stack.probe(keys(CHAINS["a"])) == scenario["hit"] == 2
    assert list(rig.hits().items()) == [("cpu", 1), ("disk", 1)]
    assert list(scenario["mapping"].values()) == [1, 1]
    tiers = [tier("cpu", capacity=8), tier("disk", capacity=20)]
    any_tier = Rig(preset="lmcache", walk="any", tiers=tiers)
    any_tier.place(held, CHAINS["a"])
    assert any_tier.stack.probe(keys(CHAINS["a"])) == 6
    assert any_tier.hits() == {"cpu": 4, "disk": 2}


def test_LM03_freeze_hides_all_tiers_but_the_cpu(storage: list[dict[str, Any]]) -> None:
    """Scenario 9."""
    scenario = storage[8]
    a, b = CHAINS["a"], CHAINS["b"]
    rig = after(lmcache(8, 20), a, b)
    assert [rig.stack.probe(keys(a)), {"LocalDiskBackend": rig.hits()["disk"]}] == scenario["before"]
    before = rig.held("cpu"), rig.held("disk")
    rig.stack.freeze()
    assert [rig.serve(a), rig.hits()] == scenario["after"]
    assert rig.serve(b) == 6  # the CPU is still read
    assert (rig.held("cpu"), rig.held("disk")) == before
    rig.stack.freeze(False)
    assert rig.serve(a) == 6


def test_lmcache_without_a_hot_cache_only_passes_chunks_through_the_cpu(storage: list[dict[str, Any]]) -> None:
    """Scenario 10: local_cpu off."""
    scenario = storage[9]
    rig = lmcache(8, 20, write="none", promotion="temporary")
    rig.serve(CHAINS["a"])
    assert rig.held("cpu") == set(scenario["cpu"]) == set()
    assert rig.held("disk") == set(named(scenario["disk"]))
    assert [rig.serve(CHAINS["a"]), {"LocalDiskBackend": rig.hits()["disk"]}] == scenario["lookup"]
    assert rig.held("cpu") == set()
    assert rig.tiers["cpu"].counters()["staged_chunks"] == 6


# -- victim sequences of 60 requests -------------------------------------------------------------


@pytest.fixture
def policies(shared: Path) -> dict[str, Any]:
    found = json.loads((shared / "golden/golden_policies.json").read_text())
    assert isinstance(found, dict)
    return found


MP_RUNS = {
    "LRU": ({"capacity": 25}, 70, 136),
    "ARC": ({"capacity": 26, "policy": "lmcache-mp-arc", "high": 0.75}, 71, 133),
}
"""Settings of L1, hits and victims. Eviction starts at 20 chunks; the ARC run holds up to 26 before it."""


@pytest.mark.parametrize("name", MP_RUNS)
def test_E64_lmcache_mp_gives_the_golden_victims(policies: dict[str, Any], name: str) -> None:
    """A fifth of what is held leaves at 20 chunks."""
    run = policies[f"lmcache_mp_{name}"]
    l1, hits, evicted = MP_RUNS[name]
    rig = Rig(preset="lmcache-mp", tiers=[tier("l1", **l1), tier("l2", write="none")])
    for step in run["steps"]:
        since = rig.log.size
        hit = rig.serve(step["chain"])
        created = [key for kind, _, key in rig.events(since) if kind == "INSERT"]
        assert (hit, created) == (step["hit"], step["created"])
        assert rig.victims("l1", since) == step.get("evicted_ratio_0.2", [])
        assert rig.tiers["l1"].used == step["resident"]
    counts = rig.tiers["l1"].counters()
    assert counts["hit_blocks"] == hits
    assert (counts["evicted_watermark_chunks"], counts["evicted_room_chunks"]) == (evicted, 0)
    if "final" in run:
        assert rig.held("l1") == {*run["final"]["t1"], *run["final"]["t2"]}


@pytest.mark.parametrize("name", ["lru", "arc"])
def test_E41_E42_vllm_offload_gives_the_golden_victims(policies: dict[str, Any], name: str) -> None:
    run = policies[f"vllm_cpu_{name}"]
    # Without a GPU tier in the way: it takes in nothing.
    gpu = tier("gpu", capacity=16, write="none", promotion="none")
    cpu = tier("cpu", capacity=run["capacity_chunks"], policy=f"vllm-offload-{name}")
    rig = Rig(preset="vllm-offload", tiers=[gpu, cpu])
    hits = 0
    for step in run["steps"]:
        since = rig.log.size
        hit = rig.serve(step["chain"])
        stored = [key for kind, _, key in rig.events(since) if kind == "INSERT"]
        assert (hit, stored, rig.victims("cpu", since)) == (step["hit"], step["stored"], step["evicted"])
        hits += hit
    assert hits == run["total_hit"]


# -- settings of presets on layouts that need a hand -----------------------------------------------


def test_E41_a_store_without_room_for_all_its_chunks_is_skipped() -> None:
    rig = Rig(preset="vllm-offload", tiers=[tier("gpu", capacity=8), tier("cpu", capacity=4)])
    rig.serve(range(4))
    rig.serve(range(10, 15))
    assert rig.held("cpu") == set(range(4))
    assert rig.tiers["cpu"].counters()["refused_room_chunks"] == 5
    leading = Rig(preset="vllm-offload", tiers=[tier("gpu", capacity=8), tier("cpu", capacity=4, fit="leading")])
    leading.serve(range(4))
    leading.serve(range(10, 15))
    assert leading.held("cpu") == set(range(10, 14))


@pytest.mark.parametrize(("admission", "duplicates"), [("presence", 0), ("all", 1)])
def test_E60_presence_offers_nothing_that_is_there(admission: str, duplicates: int) -> None:
    """Block 2 is behind a gap: G2 has it already when it is computed anew."""
    names = ["g1", "g2", "g3"]
    tiers = [tier("g1", capacity=10), *(tier(name, capacity=10, admission=admission) for name in names[1:])]
    rig = Rig(preset="kvbm", tiers=tiers)
    rig.place({"g1": [0], "g2": [0, 2], "g3": [0, 2]}, range(3))
    assert rig.serve(range(3)) == 1
    assert [rig.tiers[name].counters()["duplicate_chunks"] for name in names] == [0, duplicates, duplicates]


def test_E60_a_frequency_filter_keeps_the_disk_empty_in_ordinary_traffic() -> None:
    """KVBM before PR #8826, and E11: what is looked up behind the first miss counts, too."""
    tiers = [tier("g1", capacity=2), tier("g2", capacity=2), tier("g3", capacity=50, admission="tinylfu")]
    rig = Rig(preset="kvbm", tiers=tiers)
    for _ in range(7):
        rig.serve(range(3))
    assert rig.held("g3") == set()
    rig.serve(range(3))
    assert 2 in rig.held("g3")


def test_PR8826_blocks_of_disk_come_through_the_host() -> None:
    """Routers and timing §4, onboard."""
    rig = Rig(preset="kvbm", tiers=[tier("g1", capacity=3), tier("g2", capacity=3), tier("g3", capacity=9)])
    for chain in (range(3), range(10, 13)):
        rig.serve(chain)
    assert rig.serve(range(3)) == 3
    assert rig.hits() == {"g3": 3}
    assert rig.held("g2") == rig.held("g1") == set(range(3))


def test_E50_hicache_evicts_leaves_and_keeps_a_host_copy() -> None:
    rig = Rig(preset="hicache", tiers=[tier("gpu", capacity=4), tier("host", capacity=8)])
    rig.serve([0, 1, 2, 3])
    rig.serve([0, 1, 10])
    assert rig.held("gpu") == {0, 1, 2, 10}
    assert rig.held("host") == {0, 1, 2, 3, 10}
    assert rig.serve([0, 1, 2, 3]) == 4
    assert rig.hits() == {"gpu": 3, "host": 1}
