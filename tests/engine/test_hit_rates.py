"""The rates of serving systems: each by its own definition, from one list of requests."""

from __future__ import annotations

from typing import Any

import pytest

from kvbench import CacheEngine
from kvbench.results.hitrates import HIT_RATES, TokenSums, hit_rates


def test_all_rates_differ_on_one_list_and_equal_pencil_and_paper() -> None:
    """Chunks of 4 tokens. P = 10, 9, 12; the GPU has 4, 0, 2 of them; LMCache finds 8, 4, 12, and the
    last fetch loses the third of its chunks."""
    made = CacheEngine(tiers=["cpu,capacity=2", "disk,capacity=100"], chunk_tokens=4)
    long = list(range(100, 112))
    for prompt in (range(8), range(50, 54), long):
        made.store(prompt)
    asked: list[tuple[Any, int]] = [(range(10), 4), ([*range(50, 54), *range(5)], 0), (long, 2)]
    for number, (prompt, computed) in enumerate(asked):
        made.lookup(prompt, num_computed_tokens=computed)
        keep = {"num_computed_tokens": computed, "max_fetch": (8, 4, 12)[number]}
        if number == 2:
            made.store([1, 1, 1, 1, 2, 2, 2, 2])  # the CPU has none of it now
            made.inject("disk", get_fails=1.0)
        made.retrieve(prompt, **keep)
    sums = made.stats.sums
    assert sums == TokenSums(
        prompt=31,
        aligned=8 + 8 + 12,
        device=6,
        lookup=24,
        chunked=24,
        external=4 + 4 + 10,
        asked=4 + 4 + 12,
        delivered=8,
    )
    assert made.stats.hit_rates == pytest.approx(
        {
            "vllm_local": 6 / 31,
            "vllm_external": 18 / 25,
            "lmcache_lookup": 24 / 31,
            "lmcache_retrieve": 8 / 20,
            "lmcache_mp_lookup": 24 / 28,
            "lmcache_simulator": 24 / 31,
        }
    )
    assert len(set(list(made.stats.hit_rates.values())[:5])) == 5


def test_a_rate_of_nothing_is_null() -> None:
    assert hit_rates(TokenSums()) == {rate.name: None for rate in HIT_RATES}
    assert hit_rates(TokenSums(prompt=4, device=4))["vllm_external"] is None
