"""The rule of each router, on cases worked out by hand from its reference (routers-and-timing.md 1)."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.routers.rig import Request, Rig

S = 1_000_000_000

# -- Dynamo: R-01 to R-04 ------------------------------------------------------------------------------

DYNAMO: list[tuple[str, dict[str, Any], list[float]]] = [
    # idle and cold: each of 10 blocks is prefilled and then held
    ("dynamo-kv", {"overlap": [0, 0]}, [20, 20]),
    # 6 blocks on the device spare 6 of the prefill: 4 + 10
    ("dynamo-kv", {"overlap": [6, 0]}, [14, 20]),
    # worker 0 prefills 8 more and holds 30: 8 + 10 - 6 + 30 + 10
    ("dynamo-kv", {"overlap": [6, 0], "prefill_blocks": [8, 0], "blocks": [30, 0]}, [52, 20]),
    # host 0.75, disk 0.25: 10 - (2 + 3) + 10, and 10 - 1 + 10
    ("dynamo-kv", {"overlap": [[2, 0], [4, 0], [0, 4]]}, [15, 19]),
    # more credit than there is to prefill: never below 0
    ("dynamo-kv,overlap_credit=3", {"overlap": [9, 0]}, [10, 20]),
    ("dynamo-kv,prefill_scale=2", {"overlap": [6, 0]}, [18, 30]),
    ("dynamo-kv,request_weight=5", {"overlap": [6, 0], "requests": [2, 1]}, [24, 25]),
    # excess 20 over the least, 10 blocks: credit 1 / (1 + 0.5 · 2), so 20 + 10 - 4 + 10
    ("dynamo-kv,decay=0.5", {"overlap": [8, 8], "prefill_blocks": [20, 0]}, [36, 12]),
    # a pool that decodes: what is held, less the credit
    ("dynamo-kv,track_prefill=false", {"overlap": [6, 0], "blocks": [30, 20]}, [34, 30]),
    ("dynamo-kv-decode@1.4", {"overlap": [6, 0], "blocks": [30, 20]}, [40, 30]),
    ("dynamo-kv@1.4", {"overlap": [[6, 0], [0, 4]]}, [14, 17]),
    # (8 + 10 - 6) · (30 + 10 + 1), 10 · 11
    ("dynamo-lmetric", {"overlap": [6, 0], "prefill_blocks": [8, 0], "blocks": [30, 0]}, [492, 110]),
    # 2 · (10 - 6) + 40, 2 · 10 + 10
    ("dynamo-logit,overlap_weight=2", {"overlap": [6, 0], "blocks": [30, 0]}, [48, 30]),
]


@pytest.mark.parametrize(("router", "state", "cost"), DYNAMO)
def test_dynamo_costs_what_its_formula_says(router: str, state: dict[str, Any], cost: list[float]) -> None:
    rig = Rig(router, **state)
    assert rig.router.cost(10).tolist() == pytest.approx(cost)  # type: ignore[attr-defined]
    assert rig.chosen(50) == {worker for worker, each in enumerate(cost) if each == min(cost)}


def test_dynamo_draws_by_the_normalised_costs() -> None:
    """p ∝ exp(-(cost - min) / ((max - min) · T)): costs 10, 15 and 20 at T = 0.5 are 1, e⁻¹ and e⁻²."""
    rig = Rig("dynamo-kv,temperature=0.5", overlap=[10, 5, 0])
    times = 20_000
    drawn = Counter(rig.choose() for _ in range(times))
    odds = [1, math.exp(-1), math.exp(-2)]
    assert [drawn[worker] / times for worker in range(3)] == pytest.approx([p / sum(odds) for p in odds], abs=0.01)


def test_dynamo_draws_evenly_where_all_costs_are_equal() -> None:
    drawn = Counter(Rig("dynamo-kv,temperature=2", overlap=[3] * 4).choose() for _ in range(1))
    rig = Rig("dynamo-kv,temperature=2", overlap=[3] * 4)
    drawn = Counter(rig.choose() for _ in range(4_000))
    assert all(900 <= drawn[worker] <= 1_100 for worker in range(4))


# -- SGLang and Ray, R-48 ------------------------------------------------------------------


def test_a_poor_match_goes_to_the_least_loaded_worker_and_not_to_the_smallest_tree() -> None:
    """G01: A has a small tree and much load, B a large tree and none."""
    for router, wanted in (("sglang-cache-aware@0.3.2", 1), ("sglang-cache-aware,fallback=smallest-tree", 0)):
        rig = Rig(router, requests=[60, 0])
        rig.router.trees[:] = [1, 50]  # type: ignore[attr-defined]
        assert rig.choose() == wanted


@pytest.mark.parametrize(
    ("overlap", "requests", "wanted"),
    [
        ([4, 0, 0], [5, 0, 0], {0}),  # 0.4 of the prompt matches
        ([3, 0, 0], [5, 0, 0], {1, 2}),  # 0.3 is not above 0.3
        ([9, 9, 0], [5, 4, 0], {0, 1}),
        ([9, 0, 0], [64, 0, 0], {0}),  # 64 is not more than 64
        ([9, 0, 0], [65, 0, 0], {1, 2}),
        ([9, 0, 0], [195, 130, 131], {0}),  # 195 is not more than 1.5 · 130
        ([9, 0, 0], [196, 130, 131], {1}),
    ],
)
def test_sglang_weighs_a_match_against_uneven_load(overlap: list[int], requests: list[int], wanted: set[int]) -> None:
    assert Rig("sglang-cache-aware", overlap=overlap, requests=requests).chosen() == wanted


def test_ray_takes_matches_from_a_tenth_on_then_the_shortest_queue_then_the_smallest_tree() -> None:
    assert Rig("ray-prefix", overlap=[1, 0, 0], requests=[50, 0, 0]).chosen() == {0}
    rig = Rig("ray-prefix", overlap=[0, 0, 0], requests=[0, 9, 9])
    rig.router.trees[:] = [100, 100, 2]  # type: ignore[attr-defined]
    assert rig.choose() == 2
    assert rig.router.trees.tolist() == [100, 100, 12]  # type: ignore[attr-defined]
    busy = Rig("ray-prefix-aware,imbalance=5", overlap=[9, 0, 0], requests=[9, 3, 0])
    assert busy.chosen() == {1, 2}  # of any two workers the less loaded one is never the first


# -- rings: R-10, R-49 ------------------------------------------------------------------------------------


def test_prompts_that_share_256_of_300_tokens_go_to_the_same_worker() -> None:
    """G07, for every router that hashes the start of a prompt."""
    shared = list(range(100, 116))
    for router in ("consistent-hash", "sglang-prefix-hash", "kubeai-prefix-hash,prefix_tokens=256"):
        rig = Rig(router, requests=[0] * 8, block_tokens=16)
        one, other = ([*shared, last, last + 1] for last in (7, 9))
        assert rig.choose(blocks=18, keys=one) == rig.choose(blocks=18, keys=other)
        spread = {rig.choose(blocks=1, keys=[start]) for start in range(200)}
        assert spread == set(range(8))


def test_a_ring_moves_on_where_the_owner_has_more_than_its_share() -> None:
    rig = Rig("kubeai-prefix-hash", requests=[0] * 4)
    owner = rig.choose(blocks=1, keys=[5])
    walk = rig.router.ring.walk(5).tolist()  # type: ignore[attr-defined]
    assert walk[0] == owner
    assert sorted(walk) == [0, 1, 2, 3]
    load = np.full(4, 9)
    rig.set(requests=load)
    assert rig.choose(blocks=1, keys=[5]) == owner  # 9 + 1 <= 1.25 · 37 / 4 = 11.6
    load[owner] = 14
    rig.set(requests=load)  # 14 + 1 > 1.25 · 42 / 4 = 13.1
    assert rig.choose(blocks=1, keys=[5]) == walk[1]
    load[walk[1]] = 14  # 15 > 1.25 · 47 / 4 = 14.7
    rig.set(requests=load)
    assert rig.choose(blocks=1, keys=[5]) == walk[2]


def test_sglangs_ring_falls_back_to_the_least_load_within_bounds() -> None:
    rig = Rig("sglang-prefix-hash", requests=[0] * 4)
    owner = rig.choose(blocks=1, keys=[5])
    load = np.array([4, 5, 6, 7])
    load[owner] = 40
    rig.set(requests=load)
    assert rig.choose(blocks=1, keys=[5]) == min((w for w in range(4) if w != owner), key=lambda w: load[w])


def test_a_session_stays_until_it_was_silent_for_too_long() -> None:
    rig = Rig("session-sticky,ttl_s=10", requests=[0, 5])
    assert rig.choose(session=3) == 0
    rig.set(requests=[9, 0])
    assert [rig.choose(session=3, time_ns=t * S) for t in (9, 19)] == [0, 0]
    assert rig.choose(session=4, time_ns=19 * S) == 1
    assert rig.choose(session=3, time_ns=30 * S) == 1


# -- llm-d, R-22 ---------------------------------------------------------------------------

SCORES: list[tuple[str, dict[str, Any], list[float]]] = [
    ("llmd-prefix", {"overlap": [5, 0, 10]}, [0.5, 0, 1]),
    # 1.0 · 2 + 0.8 · 5 = 6, 4 and 2, between the least and the most
    ("llmd-precise-prefix", {"overlap": [[2, 4, 2], [5, 0, 0]]}, [1, 0.5, 0]),
    ("llmd-precise-prefix", {"overlap": [3, 3, 3]}, [0, 0, 0]),
    ("llmd-queue", {"waiting": [0, 5, 10]}, [1, 0.5, 0]),
    ("llmd-queue", {"waiting": [4, 4, 4]}, [1, 1, 1]),
    ("llmd-running", {"running": [0, 5, 10]}, [1, 0.5, 0]),
    ("llmd-kv-utilization", {"kv_usage": [0.0, 0.25, 1.0]}, [1, 0.75, 0]),
    ("llmd-load-aware", {"waiting": [0, 64, 500]}, [0.5, 0.25, 0]),
    ("llmd-active", {"requests": [0, 5, 10]}, [1, 0.5, 0]),
    ("llmd-token-load", {"tokens": [0, 2_097_152, 9_000_000]}, [1, 0.5, 0]),
    (
        "llmd-default",  # 2 · queue + 2 · free KV + 3 · prefix
        {"overlap": [10, 5, 0], "waiting": [10, 5, 0], "kv_usage": [0.5, 0.5, 0.0]},
        [0 + 1 + 3, 1 + 1 + 1.5, 2 + 2 + 0],
    ),
    (
        "blis-default",  # 2 · precise prefix + queue + free KV
        {"overlap": [10, 5, 0], "waiting": [10, 5, 0], "kv_usage": [0.5, 0.5, 0.0]},
        [2 + 0 + 0.5, 1 + 0.5 + 0.5, 0 + 1 + 1],
    ),
]


@pytest.mark.parametrize(("router", "state", "scores"), SCORES)
def test_llmd_scores_what_its_scorers_say(router: str, state: dict[str, Any], scores: list[float]) -> None:
    rig = Rig(router, **state)
    request: Any = Request(best=int(rig.router.overlap.max()))
    assert rig.router.score(request).tolist() == pytest.approx(scores)
    assert rig.chosen() == {worker for worker, each in enumerate(scores) if each == max(scores)}


def test_llmd_gives_cold_requests_to_who_had_one_longest_ago() -> None:
    rig = Rig("llmd,no_hit=1,queue=0,kv_utilization=0,prefix=0", overlap=[0, 0, 0])
    asked = [rig.choose(number=number) for number in range(6)]
    assert asked[:3] == asked[3:]
    assert sorted(asked[:3]) == [0, 1, 2]
    rig.router.overlap[:] = [0, 4, 0]
    before = rig.router.cold_at.tolist()  # type: ignore[attr-defined]
    assert rig.chosen() == {0, 1, 2}
    assert rig.router.cold_at.tolist() == before  # type: ignore[attr-defined]


# -- vLLM's balancer, AIBrix, the production stack, Mooncake, R-50 -----


def test_vllms_balancer_counts_waiting_fourfold_and_its_own_picks_until_the_next_report() -> None:
    rig = Rig("vllm-dp", waiting=[1, 0], running=[0, 3])
    assert rig.choose() == 1
    rig.set(age=2, waiting=[1, 0], running=[0, 3])
    assert rig.choose(number=2) == 0  # 4 against 4 · 1 + 3
    rig.set(age=1, waiting=[1, 0], running=[0, 3])
    assert rig.choose(number=4) == 1  # requests 1 and 3 are other routers'; the report came between


def test_aibrix_chooses_the_longest_prefix_inside_of_nearly_minimal_load() -> None:
    """G02: the least loaded workers alone where load is uneven, and of these the best match."""
    assert Rig("aibrix-prefix-cache", overlap=[9, 0, 3, 2], requests=[20, 0, 0, 0]).chosen() == {2}
    assert Rig("aibrix-prefix-cache", overlap=[9, 0, 3, 2], requests=[8, 0, 0, 0]).chosen() == {2}  # above the mean + σ
    assert Rig("aibrix-prefix-cache", overlap=[9, 0, 3, 2], requests=[5, 5, 0, 0]).chosen() == {0}
    assert Rig("aibrix-prefix-cache", overlap=[9, 9, 0, 0], requests=[5, 4, 0, 0]).chosen() == {1}
    assert Rig("aibrix-prefix-cache", overlap=[0, 0, 0, 0], requests=[5, 4, 0, 3]).chosen() == {2}


def test_preble_follows_long_matches_and_else_the_cheapest_window() -> None:
    assert Rig("aibrix-preble", overlap=[6, 6, 0], requests=[3, 1, 0]).chosen() == {1}
    rig = Rig("aibrix-preble", overlap=[0, 0, 0])
    first = [rig.choose(tokens=4_000, time_ns=0) for _ in range(3)]
    assert sorted(first) == [0, 1, 2]
    rig.router.costs[:] = [3, 2, 1]  # type: ignore[attr-defined]
    rig.router._window.clear()  # type: ignore[attr-defined]
    assert rig.choose(tokens=400, time_ns=1 * S) == 2
    assert rig.router.costs[2] > 1 + 45 * 0.15  # type: ignore[attr-defined]
    rig.choose(tokens=400, time_ns=300 * S)
    assert len(rig.router._window) == 1  # type: ignore[attr-defined]


def test_vtc_sends_a_user_with_many_tokens_to_a_high_worker() -> None:
    rig = Rig("aibrix-vtc", requests=[0, 0, 0, 0])
    assert rig.choose(tenant=1, tokens=9_000) == 0
    assert rig.choose(tenant=2, tokens=100) == 0
    # of 9,000 and 100 the bucket is 4,550: 9,000 is 1.98 of it
    assert rig.chosen(20, tenant=1, tokens=0) == {2}
    assert rig.choose(tenant=1, tokens=0, time_ns=400 * S) == 0


def test_kvaware_is_content_with_any_match_of_a_short_prompt() -> None:
    rig = Rig("pstack-kvaware", overlap=[0, 1, 1], requests=[0, 9, 9])
    assert rig.chosen(tokens=2_000) == {1}
    assert rig.chosen(tokens=2_010) == {1}  # 10 tokens match
    assert rig.chosen(tokens=2_011) == {0}
    assert len(rig.chosen(tokens=2_011, session=4)) == 1


def test_prefixaware_draws_among_the_deepest_matches() -> None:
    assert Rig("pstack-prefixaware", overlap=[3, 9, 9], requests=[0, 9, 0]).chosen() == {1, 2}


def test_loadaware_takes_load_off_the_share_that_matches() -> None:
    rig = Rig("pstack-loadaware,beta=0.5", overlap=[10, 5, 0], requests=[6, 3, 0])
    scores = rig.router.score(Request())  # type: ignore[arg-type]
    assert scores.tolist() == pytest.approx([1 - 0.5, 0.5 - 0, 0 + 0.5])
    assert Rig("pstack-loadaware", overlap=[10, 5, 0], requests=[6, 3, 0]).chosen() == {2}


def test_mooncake_weighs_what_is_queued_against_what_is_missing() -> None:
    state = {"overlap": [8, 0, 2], "prefill_blocks": [7, 0, 0]}
    assert Rig("mooncake-ttft", **state).chosen() == {2}  # 7 + 2, 10 and 8
    # a prefix four times as long is fetched: 0.8 of a block's time for 8 blocks
    fetching = Rig("mooncake-ttft,balancing_threshold=4.5", **state)
    assert fetching.router.score(Request(best=8)).tolist() == pytest.approx([-90, -28, -80])  # type: ignore[arg-type]


def test_missing_plus_load_counts_what_it_sent_to_be_computed() -> None:
    rig = Rig("missing-plus-load,per_block=100", overlap=[4, 0])
    assert [rig.choose(tokens=100) for _ in range(8)] == [0] * 7 + [1]  # 60 tokens at worker 0 each time, 100 at 1
    assert rig.router.computed.tolist() == [420, 100]  # type: ignore[attr-defined]


# -- load alone ------------------------------------------------------------------------------------------------


def test_the_least_load_and_the_most() -> None:
    assert Rig("least-loaded", requests=[3, 1, 1, 2]).chosen() == {1, 2}
    assert Rig("least-loaded,signal=tokens", requests=[3, 1, 1, 2], tokens=[0, 1, 1, 1]).chosen() == {0}
    assert Rig("aibrix-least-gpu-cache", kv_usage=[0.5, 0.25]).chosen() == {1}
    assert Rig("aibrix-throughput", tokens=[90, 80], requests=[3, 2]).chosen() == {0}
    assert Rig("always-busiest", requests=[3, 1, 1, 2]).chosen() == {0}


def test_the_busiest_of_all_never_wins_against_another() -> None:
    drawn = Counter(Rig("power-of-two", requests=[5, 1, 1, 9], seed=seed).choose() for seed in range(600))
    assert drawn[3] == 0
    assert drawn[0] == pytest.approx(100, abs=35)  # with 1 of 6 pairs
    assert drawn[1] + drawn[2] == pytest.approx(500, abs=35)


# -- max-prefix: R-51, G12 ---------------------------------------------------------------------------------------


def test_blocks_count_with_the_weight_of_their_fastest_tier() -> None:
    """G12: a prefix that only the CPU holds scores with the CPU's weight."""
    state = {"overlap": [[2, 0, 0], [0, 4, 0], [0, 0, 9]]}
    assert Rig("max-prefix,cpu=0.75,other=0.25", **state).chosen() == {1}
    assert Rig("max-prefix,cpu=0.25,other=0.1", **state).chosen() == {0}
    assert Rig("max-prefix,fallback=ties", **state).chosen() == {2}
