"""Corners of an engine's calls: larger chunks below, time, stores that wait, wrong values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from kvbench import CacheEngine, ConfigError, EngineCosts, EngineMetadata
from kvbench.errors import ArgumentError

A, B, C = (list(range(start, start + 16)) for start in (100, 200, 300))


def engine(*tiers: str, **settings: Any) -> CacheEngine:
    return CacheEngine(tiers=list(tiers), chunk_tokens=4, **settings)


def test_a_removal_takes_larger_chunks_whole() -> None:
    made = engine("gpu,capacity=2", "cpu,capacity=90,chunk=2")
    made.store(A)
    assert made.remove(A[:8]) == 8
    assert made.locations(A) == [(), (), ("cpu",), ("cpu",)]


@pytest.mark.parametrize("computed", [0, 4])
def test_what_a_receiver_retrieved_is_gone_and_nothing_else(computed: int) -> None:
    made = engine("disk,capacity=100,chunk=2", remove_after_retrieve=True)
    made.store(A)
    mask = made.retrieve(A, num_computed_tokens=computed, max_fetch=8).mask
    assert np.flatnonzero(mask).tolist() == list(range(computed, 8))
    assert made.locations(A) == [(), (), ("disk",), ("disk",)]
    made.retrieve(A)
    assert made.used_chunks == {"disk": 1}


def test_overlap_with_larger_chunks_is_counted() -> None:
    """The disk reads tokens 0 to 15 for the last 8; and 4 are computed beyond a border."""
    made = engine("cpu,capacity=2", "disk,capacity=9,chunk=4")
    made.store(A)
    made.retrieve(A)
    assert made.stats.overlap_tokens == 8
    other = engine("disk,capacity=9,chunk=4")
    other.store(A)
    assert int(other.retrieve(A, num_computed_tokens=10).mask.sum()) == 8
    assert other.stats.overlap_tokens == 10


def test_a_lookup_knows_the_time() -> None:
    now = 0
    made = engine("cpu,capacity=20,policy=ttl,policy.seconds=1", clock=lambda: now)
    made.store(A)
    assert made.lookup(A) == 16
    now = 2 * 10**9
    assert made.lookup(A) == 0
    assert made.lookup(A, pin=True, lookup_id=1) == 0


# -- stores that wait --------------------------------------------------------------------------------


def waiting() -> CacheEngine:
    """Room for six chunks, four of them pinned; two chunks of B wait."""
    made = engine("cpu,capacity=6", wait_for_room=True)
    made.store(A)
    made.pin(A)
    assert made.store(B).stored_tokens == 8
    return made


def test_a_lookup_stores_nothing_that_waits() -> None:
    made = waiting()
    before = made.locations(A), made.locations(B), made.locations(C)
    made.lookup(C)
    made.lookup(A, pin=True, lookup_id=1)
    assert (made.locations(A), made.locations(B), made.locations(C)) == before


def test_what_waits_is_stored_by_the_release_of_another_engine() -> None:
    made = engine("cpu,capacity=6", wait_for_room=True)
    other = made.peer()
    other.store(A)
    other.pin(A)
    made.store(B)
    other.unpin(A)
    assert made.lookup(B) == 16


@pytest.mark.parametrize(
    ("stop", "go"),
    [
        (lambda made: made.freeze(), lambda made: made.freeze(False)),
        (lambda made: made.unhealthy(), lambda made: made.healthy()),
    ],
)
def test_a_stopped_engine_stores_what_waits_when_it_goes_on(stop: Any, go: Any) -> None:
    made = waiting()
    other = made.peer()
    stop(made)
    made.unpin(A)
    assert [bool(place) for place in other.locations(B)] == [True, True, False, False]
    go(made)
    other.store([])
    assert made.lookup(B) == 16


@pytest.mark.parametrize("end", [CacheEngine.clear, lambda made: made.remove(B), CacheEngine.close])
def test_what_is_removed_or_whose_engine_is_closed_waits_no_longer(end: Any) -> None:
    made = waiting()
    other = made.peer()
    end(made)
    other.store([])
    kept = 2 if end is CacheEngine.close else 0
    assert [bool(place) for place in other.locations(B)].count(True) == kept
    assert not other._pool.waiting


def test_what_never_fits_is_not_stored_over_and_over() -> None:
    made = engine("cpu,capacity=4", wait_for_room=True)
    made.store(A[:4])
    made.pin(A[:4])
    for number in range(50):
        made.store([number] * 40)
    assert made.stats.stored_tokens <= made.stats.requested_store_tokens


# -- counts ------------------------------------------------------------------------------------------


def test_a_pin_of_an_unhealthy_engine_can_be_taken_back() -> None:
    made = engine("cpu,capacity=6")
    made.store(A)
    made.unhealthy()
    assert made.pin(A) == 0
    made.healthy()
    made.unpin(A)
    assert made.references == 0


def test_presence_for_a_store_does_not_depend_on_what_lookups_see() -> None:
    made = engine("cpu,capacity=2", "disk,capacity=20", placement="spill", retrieve_tiers=["disk"])
    made.store(A)
    assert made.store(A).stored_tokens == 0
    assert made.used_chunks == {"cpu": 2, "disk": 2}


def test_a_mask_over_ready_hashes_ends_where_one_of_their_blocks_does() -> None:
    made = engine("cpu,capacity=20")
    given: dict[str, Any] = {"hashes": [1, 2, 3], "offsets": [3, 3, 4]}
    assert made.store(**given, mask=[False] * 3 + [True] * 7) == (7, 7, "")
    with pytest.raises(ArgumentError, match="4 Falses"):
        made.store(**given, mask=[False] * 4 + [True] * 6)


def test_ready_hashes_cost_no_hashing() -> None:
    made = engine("cpu,capacity=20", costs=EngineCosts(hashed_tokens_per_s=0.5))
    made.store(hashes=[1, 2], offsets=[4, 4])
    assert made.stats.store_phase_ns["keys"] == 0
    made.store([1, 2, 3, 4])
    assert made.stats.store_phase_ns["keys"] == 8 * 10**9
    for rate in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match="hashed_tokens_per_s"):
            EngineCosts(hashed_tokens_per_s=rate)


@pytest.mark.parametrize("settings", [{"tails": "keep"}, {"separator": [1, 2]}, {}])
def test_no_rate_is_above_one(settings: dict[str, Any]) -> None:
    made = engine("cpu,capacity=20", **settings)
    prompt = [5, 6, 7, 1, 2, 8, 9, 10, 1, 2, 3]
    made.store(prompt)
    made.lookup(prompt)
    made.retrieve(prompt)
    assert all(rate is None or 0 <= rate <= 1 for rate in made.stats.hit_rates.values())
    assert made.stats.hit_rates["lmcache_mp_lookup"] == 1


def test_closing_an_engine_wakes_the_stores_of_others_and_gives_up_its_own() -> None:
    holder = engine("cpu,capacity=6", wait_for_room=True)
    other = holder.peer()
    holder.store(A)
    holder.pin(A)
    other.store(B)
    holder.close()
    holder.close()
    assert other.lookup(B) == 16
    third = other.peer()
    other.pin(B)
    third.store(C)
    assert third._pool.waiting
    third.close()
    assert not third._pool.waiting


def test_nothing_is_kept_of_pins_that_were_taken_back() -> None:
    made = engine("cpu,capacity=6")
    made.store(A)
    made.pin(A)
    made.unpin(A)
    assert not made._pins


@pytest.mark.parametrize("number", [4, np.int64(4), np.uint32(4)])
def test_counts_of_tokens_may_be_numpy_integers(number: Any) -> None:
    made = engine("cpu,capacity=6")
    made.store(A)
    assert int(made.retrieve(A, max_fetch=number).mask.sum()) == 4
    assert made.lookup(A, num_computed_tokens=number) == 16


def test_a_lease_that_ran_out_is_counted_with_its_engine() -> None:
    now = 0
    made = engine("cpu,capacity=6", clock=lambda: now)
    other = made.peer()
    made.store(A)
    made.lookup(A, pin=True, lookup_id=1)
    now = 301 * 10**9
    other.lookup(A)
    assert (made.stats.forced_unpins, other.stats.forced_unpins) == (1, 0)


def test_a_retry_lets_some_failing_gets_through() -> None:
    delivered = []
    for retries in (0, 20):
        made = engine("cpu,capacity=100", retries=retries)
        made.store(A)
        made.inject("cpu", get_fails=0.5)
        delivered.append(sum(int(made.retrieve(A).mask.sum()) for _ in range(20)))
        made.store(A)
    assert delivered[0] < delivered[1] == 320


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"round_fetch": "x"}, "round_fetch = 'x' is not one of down, up"),
        ({"pin_timeout_s": 5}, "no effect without a clock"),
        ({"store_tiers": "cpu"}, "give a list"),
        ({"retries": -1}, "retries = -1"),
        ({"metadata": EngineMetadata(), "faults": "x"}, "'faults' says nothing of an engine"),
    ],
)
def test_a_setting_of_no_use_is_refused(settings: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        engine("cpu,capacity=4", **settings)


def test_store_tiers_that_take_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="none of them takes computed chunks"):
        engine("gpu,capacity=4", "disk,capacity=9", placement="exclusive", store_tiers=["disk"])


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda made: made.lookup(A, pin=True, lookup_id=[1]), "hashable"),
        (lambda made: made.retrieve(A, max_fetch=2.5), "max_fetch = 2.5"),
        (lambda made: made.lookup(A, num_computed_tokens=1.5), "num_computed_tokens = 1.5"),
    ],
)
def test_a_wrong_value_is_one_clear_error(call: Any, part: str) -> None:
    with pytest.raises(ArgumentError, match=part):
        call(engine("cpu,capacity=4"))


@pytest.mark.parametrize("world", [0, -1])
def test_a_world_of_nobody_is_refused(world: int) -> None:
    with pytest.raises(ConfigError, match=f"world_size = {world}"):
        EngineMetadata(world_size=world)
