"""Ten caches of one worker each against one pool as large as all of them (Mooncake, FAST'25, figure 10)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from readme import PUBLISHED_POOLS, pool_settings

import kvbench

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
ROUTERS = ("round-robin", "random", "max-prefix")
GLOBAL_POINTS = {"conversation": 1.0, "synthetic": 3.1}
"""How far the pool may be from the published value: tokens of the paper's trace are finer than 512-token blocks."""


@cache
def rate(trace: Path, *, pooled: bool, router: str, **size: int) -> float:
    found = kvbench.replay(trace, **pool_settings(pooled=pooled, router=router, **size)).rates["token"]
    assert found is not None
    return found


@pytest.mark.parametrize("name", list(PUBLISHED_POOLS))
def test_one_pool_hits_what_was_published(mooncake: Callable[[str], Path], name: str) -> None:
    """By token; who serves a request makes no difference to a pool."""
    _, published = PUBLISHED_POOLS[name]
    rates = {rate(mooncake(name), pooled=True, router=router) for router in ROUTERS}
    assert len(rates) == 1
    assert abs(100 * rates.pop() - published) <= GLOBAL_POINTS[name]


@pytest.mark.parametrize(("name", "hits"), [("conversation", 103_511), ("synthetic", 77_953)])
def test_a_pool_of_a_cluster_is_one_cache(mooncake: Callable[[str], Path], name: str, hits: int) -> None:
    """The reference counts, at its three blocks more, which change nothing."""
    for capacity in (58_590, 58_593):
        tiers = [{"name": "pool", "capacity": capacity, "scope": "cluster"}]
        pool = kvbench.replay(
            mooncake(name), tails="keep", order="head-first", workers=10, router="round-robin", tiers=tiers
        )
        alone = kvbench.replay(mooncake(name), tails="keep", order="head-first", capacity=capacity, belady="off")
        assert pool.summary["blocks"]["hit"] == alone.summary["blocks"]["hit"] == hits


@pytest.mark.parametrize("name", list(PUBLISHED_POOLS))
def test_local_caches_lie_on_the_published_side(mooncake: Callable[[str], Path], name: str) -> None:
    """Only the order is held: the router of the published local caches weighs load, and is not known.
    Routing without a look at the caches hits less than published, the pool more."""
    published_local, _ = PUBLISHED_POOLS[name]
    pool = 100 * rate(mooncake(name), pooled=True, router="round-robin")
    for router in ("round-robin", "random"):
        local = 100 * rate(mooncake(name), pooled=False, router=router)
        assert local < published_local < pool


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("name", list(PUBLISHED_POOLS))
def test_a_pool_hits_no_less_than_local_caches_of_its_size(
    mooncake: Callable[[str], Path], name: str, router: str
) -> None:
    """User report J07."""
    assert rate(mooncake(name), pooled=True, router=router) >= rate(mooncake(name), pooled=False, router=router)


@pytest.mark.parametrize("router", ["round-robin", "random"])
@pytest.mark.parametrize("workers", [2, 4, 10])
@pytest.mark.parametrize("blocks", [100, 300, 900])
def test_a_pool_hits_no_less_on_the_sample(router: str, workers: int, blocks: int) -> None:
    """User report J07, on the trace that ships. It is no law for max-prefix: a router that keeps sessions
    apart parts the caches, too, and an LRU in parts can hit a little more than one in whole."""
    size = {"workers": workers, "capacity": blocks}
    pool, local = (rate(CHAT, pooled=pooled, router=router, **size) for pooled in (True, False))
    assert pool >= local > 0
