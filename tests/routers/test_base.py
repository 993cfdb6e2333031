"""Routers in Python: what they are shown, and how they break ties (semantics §8.3, G04)."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import kvbench
from kvbench.builtin_routers import TIE_RULES
from kvbench.errors import PolicyError
from kvbench.plugins import Distribution, load_registry
from kvbench.routers import Router
from kvbench.routing import RouterContext
from kvbench.specs import Param, RouterPolicySpec


class Longest(Router):
    """The longest prefix, without a load term."""

    def score(self, request):
        return self.overlap


class Watching(Router):
    """Goes round, and keeps what it was shown."""

    wants = ("tiers",)
    shown: list[dict]

    def __init__(self, context):
        super().__init__(context)
        type(self).shown = []

    def score(self, request):
        known = self.known
        self.shown.append(
            {
                "overlap": self.overlap.tolist(),
                "tiers": self.tier_overlap.tolist(),
                "keys": [request.key(i) for i in range(request.blocks)],
                **{
                    name: known.signal(name).tolist() for name in ("requests", "tokens", "prefilling", "prefill_blocks")
                },
                **{name: known.signal(name).tolist() for name in ("waiting", "running", "kv_usage")},
                "assigned": known.assigned_tokens.tolist(),
                "session": request.session,
            }
        )
        scores = np.zeros(self.workers)
        scores[request.number % self.workers] = 1
        return scores


class Plugin:
    @kvbench.hookimpl
    def kvbench_router_policies(self):
        ties = Param("ties", str, "random", "who of equal workers", choices=TIE_RULES)
        yield RouterPolicySpec("longest", Longest, "longest prefix", params=(ties,))
        yield RouterPolicySpec("watching", Watching, "keeps what it sees", uses=("session_id",))


@pytest.fixture
def registry():
    return load_registry([(Plugin(), Distribution("plugin", "1"))], autoload=False)


def workers_of(result):
    return result.requests["worker"].to_pylist()


@pytest.mark.parametrize("rule", ["random", "turns", "least-requests", "least-assigned"])
def test_cold_requests_spread_over_idle_workers(make_trace, registry, rule):
    """G04: 400 cold requests over 4 workers, 80 to 120 each; the same seed gives the same workers."""
    trace = make_trace([[i] for i in range(400)])
    settings = {"workers": 4, "router": f"longest,ties={rule}", "registry": registry, "keep_requests": True}
    chosen = workers_of(kvbench.replay(trace, seed=1, **settings))
    assert all(80 <= count <= 120 for count in Counter(chosen).values())
    assert len(set(chosen)) == 4
    assert workers_of(kvbench.replay(trace, seed=1, **settings)) == chosen


def test_always_taking_the_first_of_equal_workers_overloads_it(make_trace, registry):
    """G04: what the rule above is there against."""
    trace = make_trace([[i] for i in range(400)])
    result = kvbench.replay(trace, workers=4, router="longest,ties=first", registry=registry)
    assert result.summary["workers"]["max_over_mean_requests"] == 4


def test_router_sees_prefixes_load_and_facts_of_the_request(make_trace, registry):
    """Two workers in turn; every request is one of two blocks of 64 tokens."""
    trace = make_trace([[0, 1], [2, 3], [0, 1], [9, 1]])
    kvbench.replay(trace, workers=2, router="watching", registry=registry, capacity=8)
    first, second, third, fourth = Watching.shown
    assert first["requests"] == first["assigned"] == [0, 0]
    assert second["requests"] == second["prefilling"] == second["waiting"] == [1, 0]
    assert second["prefill_blocks"] == [2, 0]
    assert second["kv_usage"] == [2 / 8, 0]
    assert third["overlap"] == [2, 0]
    assert third["tiers"] == [[2, 0]]
    assert third["keys"] == first["keys"]
    assert fourth["overlap"] == [0, 0]
    assert fourth["prefill_blocks"] == [2, 2]  # the third was predicted to hit in full
    assert fourth["assigned"][0] == 2 * fourth["assigned"][1]


@pytest.mark.parametrize(
    ("figures", "part"),
    [(lambda workers: np.zeros(2), "shape (2,), for 4 workers"), (lambda workers: np.full(workers, np.nan), "NaN")],
)
def test_figures_that_are_not_one_number_for_each_worker_are_an_error(make_trace, figures, part):
    class Wrong(Router):
        def score(self, request):
            return figures(self.workers)

    class Module:
        @kvbench.hookimpl
        def kvbench_router_policies(self):
            yield RouterPolicySpec("wrong", Wrong, "Wrong figures.")

    registry = load_registry([(Module(), Distribution("example", "1"))], autoload=False)
    with pytest.raises(kvbench.PluginError, match=re.escape(part)):
        kvbench.replay(make_trace([[1, 2], [1, 2]]), router="wrong", workers=4, registry=registry)


def test_a_router_that_wants_what_there_is_not_is_refused():
    class Wishful(Router):
        wants = ("held",)

    with pytest.raises(PolicyError, match="Wishful wants 'held'"):
        Wishful(RouterContext(2))
