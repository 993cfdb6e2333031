"""The seven known issues of the predecessor's cache manager (seed-behaviours.md, section 11): none is one here."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import kvbench
from kvbench import CacheEngine, EngineCosts, HashAlgorithmSpec
from kvbench.cache.fold import Fold
from kvbench.plugins import load_registry
from kvbench.serving.devices import make_device

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
ALGORITHMS = load_registry(autoload=False).names(HashAlgorithmSpec)


def engine(*tiers: str, **settings: Any) -> CacheEngine:
    return CacheEngine(tiers=list(tiers), chunk_tokens=4, **settings)


def test_issue_1_one_insert_too_many_evicts_one_chunk_and_never_a_pinned_one() -> None:
    made = engine("cpu,capacity=3", keep_events=True, block_bytes=1000)
    prompts = [[number] * 4 for number in range(4)]
    for prompt in prompts[:3]:
        made.store(prompt)
    made.pin(prompts[0])
    made.store(prompts[3])
    assert [event["kind"] for event in made.events] == ["INSERT"] * 3 + ["DELETE", "INSERT"]
    assert [made.lookup(prompt) for prompt in prompts] == [4, 0, 4, 4]
    made.unpin(prompts[0])
    assert made.remove(prompts[0]) == 4
    assert made.used_chunks == {"cpu": 2}


def test_issue_2_the_routers_index_loses_what_the_workers_lose() -> None:
    """It hears of removals and moves too: with no delay it predicts what is delivered."""
    tiers = ["gpu,capacity=40", "cpu,capacity=120"]
    result = kvbench.replay(CHAT, tiers=tiers, placement="exclusive", workers=3, keep_requests=True)
    assert result.requests is not None
    rows = result.requests.to_pylist()
    assert sum(row["evicted_blocks"] for row in rows) > 0
    assert all(row["predicted_blocks"] == row["hit_blocks"] for row in rows)


def test_issue_3_where_a_chunk_is_follows_from_the_log_at_every_moment() -> None:
    made = engine("gpu,capacity=2", "cpu,capacity=3", placement="exclusive", keep_events=True)
    prompts = [[number, *[7] * (4 * (number % 3) + 3)] for number in range(6)]
    for prompt in prompts + prompts[::-1]:
        made.retrieve(prompt)
        made.store(prompt)
        fold = Fold()
        for event in made.events:
            source = None if event["source_tier"] is None else (event["source_tier"], 0)
            fold.event(event["kind"], (event["tier"], 0), event["key"], parent=event["parent"], source=source)
        held = {name: len(fold.holdings.get((name, 0), {})) for name in ("gpu", "cpu")}
        assert held == made.used_chunks
        places = [place for each in prompts for place in made.locations(each)]
        assert set(places) <= {(), ("gpu",), ("cpu",)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_issue_4_every_hash_algorithm_can_be_chosen(name: str) -> None:
    hashing = {"name": name}
    if any(param.name == "seed" for param in load_registry(autoload=False).get(HashAlgorithmSpec, name).params):
        hashing["seed"] = "0"
    made = engine("cpu,capacity=10", hashing=hashing)
    made.store(range(12))
    assert (made.lookup(range(12)), made.lookup([*range(8), 0, 0, 0, 0])) == (12, 8)


def test_issue_5_the_copy_out_of_the_gpu_has_a_cost_and_is_no_stub() -> None:
    link = make_device("cpu-pcie4")
    made = engine("cpu,capacity=10", block_bytes=10**6, costs=EngineCosts(link=link))
    made.store(range(12))
    assert made.stats.store_phase_ns["copy_out"] == link.read_ns(3 * 10**6)


def test_issue_6_a_fetch_takes_the_tier_and_the_link_one_after_the_other() -> None:
    link, nvme = make_device("cpu-pcie5"), make_device("nvme-gen4")
    made = engine("nvme,capacity=10,device=nvme-gen4", block_bytes=10**6, costs=EngineCosts(link=link))
    made.store(range(12))
    made.retrieve(range(12))
    assert made.stats.fetch_ns == nvme.read_ns(3 * 10**6) + link.write_ns(3 * 10**6)
    assert nvme.read_ns(3 * 10**6) == nvme.read_latency_ns + nvme.busy_read_ns(3 * 10**6)


def test_issue_7_a_clean_run_warns_of_nothing_and_its_counts_are_in_the_result(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        with engine("cpu,capacity=2") as made:
            made.store(range(12))
            made.retrieve(range(12))
        assert made.stats.to_dict()["stored_tokens"] == 8
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
