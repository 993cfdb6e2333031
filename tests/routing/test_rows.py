"""Rows of the predecessors' behaviours and users' reports that concern routing (OP-.., BUG-.., G..)."""

from __future__ import annotations

from collections import Counter

import pytest

import kvbench


def chosen(trace, **settings):
    return kvbench.replay(trace, keep_requests=True, **settings).requests["worker"].to_pylist()


@pytest.mark.parametrize("seed", range(5))
def test_cold_requests_spread_over_idle_workers(make_trace, seed):
    """G04, OP-46: nobody holds anything, so the draw decides; a router that takes the first would send 400 there."""
    trace = make_trace([[i] for i in range(400)])
    settings = {"workers": 4, "router": "max-prefix", "seed": seed}
    workers = chosen(trace, **settings)
    # 400 draws over 4 workers have a standard deviation of 8.7 each: 80 to 120 is what most seeds give.
    assert all(75 <= workers.count(worker) <= 125 for worker in range(4))
    assert chosen(trace, **settings) == workers
    assert chosen(trace, **{**settings, "seed": seed + 100}) != workers


def test_a_draw_of_the_default_seed_is_even_enough(make_trace):
    """Acceptance of G04: 80 to 120 each."""
    counts = Counter(chosen(make_trace([[i] for i in range(400)]), workers=4, router="max-prefix"))
    assert all(80 <= counts[worker] <= 120 for worker in range(4))


def test_longest_prefix_nearly_reaches_the_infinite_bound_where_caches_are_roomy(mooncake):
    """BUG-01: with keys of one type end to end, max-prefix delivers what one infinite shared cache would; a
    router that never matches falls far behind, and the bound beside it shows that."""
    trace = mooncake("synthetic")
    settings = {"workers": 4, "capacity": 100_000}
    longest = kvbench.replay(trace, router="max-prefix", **settings).summary
    drawn = kvbench.replay(trace, router="random", **settings).summary
    infinite = longest["infinite_rates"]["token"]
    assert longest["rates"]["token"] > 0.99 * infinite
    assert drawn["rates"]["token"] < 0.85 * infinite
    assert drawn["routing"]["routed_away_tokens"] > 0.1 * drawn["routing"]["best_tokens"]
    assert longest["routing"]["routed_away_tokens"] == 0


def test_longest_prefix_pins_a_hot_prefix_to_one_worker(make_trace):
    """G03: 100/0/0/0, the best hits and the worst load; the draw trades one for the other, in the same figures."""
    trace = make_trace([[0, i + 1] for i in range(100)])
    longest, drawn = (kvbench.replay(trace, workers=4, router=name).summary for name in ("max-prefix", "random"))
    assert sorted(each["requests"] for each in longest["workers"]["each"]) == [0, 0, 0, 100]
    assert longest["workers"]["max_over_mean_requests"] == 4
    assert longest["rates"]["token"] > drawn["rates"]["token"]
    assert drawn["workers"]["max_over_mean_requests"] < 1.5


def test_prompts_that_share_most_of_their_blocks_meet(make_trace):
    """G07."""
    shared = list(range(26))
    for seed in range(5):
        first, second = chosen(make_trace([[*shared, 100], [*shared, 200]]), workers=8, router="max-prefix", seed=seed)
        assert first == second


def test_a_restarted_worker_is_credited_with_nothing(make_trace, tmp_path):
    """G09: what the restart took is neither predicted nor hit; the others keep theirs."""
    plan = tmp_path / "plan.toml"
    plan.write_text('[[fault]]\nkind = "restart"\ntier = "gpu"\nworker = 0\nfrom_request = 4')
    trace = make_trace([[1, 2], [3, 4], [1, 2], [3, 4], [1, 2], [3, 4]])
    result = kvbench.replay(
        trace, workers=2, router="round-robin", tiers=["gpu,capacity=10"], faults=str(plan), keep_requests=True
    )
    assert result.requests["predicted_blocks"].to_pylist() == [0, 0, 2, 2, 0, 2]
    assert result.requests["hit_blocks"].to_pylist() == [0, 0, 2, 2, 0, 2]
