"""LMCache's own storage runs, call by call, on an engine of preset ``lmcache``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvbench import CacheEngine

LENGTHS = {"a": 6, "b": 6, "c": 3}
CHUNK = 16


def prompt(name: str) -> list[int]:
    """The chunks of a chain are alike in nothing but their order."""
    return [1000 * ord(name) + token for token in range(CHUNK * LENGTHS[name])]


def engine(cpu: int, disk: int | None = None, **settings: Any) -> CacheEngine:
    tiers: list[dict[str, Any]] = [{"name": "cpu", "capacity": cpu, **settings}]
    tiers.append({"name": "disk", "capacity": disk or 1000, **({} if disk else {"write": "none"})})
    return CacheEngine(preset="lmcache", tiers=tiers, chunk_tokens=CHUNK, block_bytes=8192)


def in_cpu(made: CacheEngine) -> set[str]:
    return {
        f"{name}{at}" for name in LENGTHS for at, place in enumerate(made.locations(prompt(name))) if "cpu" in place
    }


@pytest.fixture
def scenarios(shared: Path) -> list[dict[str, Any]]:
    found = json.loads((shared / "golden/golden_lmcache.json").read_text())["storage_behaviour"]["scenarios"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("number", range(4))
def test_stores_and_lookups_find_and_keep_what_lmcache_does(scenarios: list[dict[str, Any]], number: int) -> None:
    """Scenarios 1 to 4: LRU, LFU, FIFO, MRU."""
    scenario = scenarios[number]
    made = engine(8, policy=scenario["policy"].lower())
    for step in scenario["steps"]:
        words = step["op"].split()
        if words[0] == "store":
            made.store(prompt(words[1]))
            assert sum(name.startswith(words[1]) for name in in_cpu(made)) == step["res"]
        elif "pin+touch," in words:
            offset = made.lookup(prompt(words[1]), pin=True, lookup_id=step["op"])
            assert offset == CHUNK * step["res"]
            assert made.lookup_unpin(step["op"])
        else:
            assert made.lookup(prompt(words[1])) == CHUNK * step["res"]
        assert in_cpu(made) == set(step["hot_cache_order_after"])


def test_a_chain_that_does_not_fit_loses_its_tail_round_after_round(scenarios: list[dict[str, Any]]) -> None:
    """Scenario 5: a pinned lookup, its release, and a store of what lies behind the hit."""
    made = engine(8)
    tokens = list(range(CHUNK * 10))
    for step in scenarios[4]["steps"]:
        hit = made.lookup(tokens, pin=True, lookup_id="round")
        made.lookup_unpin("round")
        result = made.store(tokens, mask=[at >= hit for at in range(len(tokens))])
        assert (hit, result.stored_tokens) == (CHUNK * step["hit"], CHUNK * step["stored"])


def test_pinned_chunks_leave_room_for_two(scenarios: list[dict[str, Any]]) -> None:
    """Scenario 6."""
    made = engine(8)
    made.store(prompt("a"))
    made.lookup(prompt("a"), pin=True, lookup_id=1)
    assert made.store(prompt("b")).stored_tokens == CHUNK * scenarios[5]["stored"]
    assert in_cpu(made) == set(scenarios[5]["order"])


def test_what_a_get_brings_up_from_disk_and_what_stays_there(scenarios: list[dict[str, Any]]) -> None:
    """Scenario 7; LMCache's own account keeps the bytes of what is removed, which is a defect."""
    made = engine(8, 20)
    for name, step in zip("ab", scenarios[6]["steps"], strict=False):
        made.store(prompt(name))
        assert in_cpu(made) == set(step["cpu"])
    found = next(step for step in scenarios[6]["steps"] if "hit" in step)
    assert made.lookup(prompt("a")) == CHUNK * found["hit"]
    mask, tiers = made.retrieve(prompt("a"))
    assert mask.all()
    assert tiers["disk"] == CHUNK * found["mapping"]["LocalDiskBackend"]
    assert in_cpu(made) == set(next(step for step in scenarios[6]["steps"] if step["op"] == "after batched_get")["cpu"])
    assert made.used_chunks["disk"] * 8192 == 98304


def test_frozen_it_reads_the_cpu_alone(scenarios: list[dict[str, Any]]) -> None:
    """Scenario 9: a's head was pushed out of the CPU by b."""
    made = engine(8, 20)
    made.store(prompt("a"))
    made.store(prompt("b"))
    before = made.lookup(prompt("a"))
    made.freeze()
    assert (before // CHUNK, made.lookup(prompt("a")) // CHUNK) == (
        scenarios[8]["before"][0],
        scenarios[8]["after"][0],
    )
