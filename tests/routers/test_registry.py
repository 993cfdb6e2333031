"""What holds for every router that ships (OP-46, BUG-11, G03, G04, G16)."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.builtin_routers import SIGNALS, TIE_RULES
from kvbench.plugins import load_registry
from kvbench.routers.terms import Load
from kvbench.routers.ties import Ties
from kvbench.routing import LoadView, RandomStream
from kvbench.specs import RouterPolicySpec

REGISTRY = load_registry(autoload=False)
ROUTERS = REGISTRY.names(RouterPolicySpec)
NO_BALANCE = {"always-busiest", "aibrix-vtc"}
"""Routers that promise nothing of cold requests: the worst there is, and one for fairness among users."""


def workers_of(trace: pa.Table, router: str, **settings: Any) -> list[int]:
    kept = kvbench.replay(trace, router=router, registry=REGISTRY, keep_requests=True, **settings).requests
    assert kept is not None
    chosen: list[int] = kept["worker"].to_pylist()
    return chosen


def with_sessions(make_trace: Any, rows: list[list[int]], partial: list[int] | None = None) -> pa.Table:
    """A trace of one tenant, each request a session."""
    sessions = pa.array([str(row) for row in range(len(rows))])
    return make_trace(rows, partial, session_id=sessions, tenant=pa.array(["t"] * len(rows)))


@pytest.mark.parametrize("router", [name for name in ROUTERS if name not in NO_BALANCE])
def test_cold_requests_spread_over_idle_workers(make_trace: Any, router: str) -> None:
    """G04: 400 cold requests over 4 workers, 80 to 120 each; the same seed gives the same workers."""
    trace = with_sessions(make_trace, [[i] for i in range(400)])
    settings = {"workers": 4, "seed": 3, "capacity": 1_000}
    chosen = workers_of(trace, router, **settings)
    counts = Counter(chosen)
    assert all(80 <= counts[worker] <= 120 for worker in range(4)), counts
    assert workers_of(trace, router, **settings) == chosen


@pytest.mark.parametrize("router", ROUTERS)
def test_every_router_serves_every_workload(make_trace: Any, router: str) -> None:
    """OP-46, BUG-11: chats, and prompts shorter than a block, over a stack of tiers."""
    chats = [[100 * chat + i for i in range(turn)] for turn in range(1, 6) for chat in range(8)]
    rows = [*chats, [901], [902], [901]]
    trace = with_sessions(make_trace, rows, [0] * len(chats) + [5] * 3)
    tiers = ["gpu,capacity=20", "cpu,capacity=40", "dfs,capacity=200,scope=cluster"]
    result = kvbench.replay(trace, router=router, registry=REGISTRY, workers=3, tiers=tiers)
    assert result.summary["requests"]["done"] == len(chats) + 3
    rates = result.rates["block"]
    assert rates is not None
    assert 0 <= rates <= 1


def test_a_hot_prefix_stays_on_one_worker_or_is_traded_for_balance(make_trace: Any) -> None:
    """G03: max-prefix has the best hit rate and a load of 4.0, max over mean; a router with a load term trades."""
    trace = make_trace([[1, 2, 3, 4, 100 + i] for i in range(100)])
    found = {}
    for router in ("max-prefix", "pstack-loadaware", "dynamo-kv", "least-loaded", "round-robin"):
        summary = kvbench.replay(trace, router=router, registry=REGISTRY, workers=4, capacity=1_000).summary
        found[router] = (summary["workers"]["max_over_mean_requests"], summary["rates"]["block"])
    assert found["max-prefix"] == (4.0, 99 * 4 / 500)
    for router in ("pstack-loadaware", "dynamo-kv", "least-loaded", "round-robin"):
        load, rate = found[router]
        assert load < 1.2, router
        assert rate == 96 * 4 / 500, router


def test_a_router_for_every_idea_is_there() -> None:
    """G16."""
    asked = {"random", "round-robin", "least-loaded", "power-of-two", "max-prefix", "llmd", "session-sticky"}
    assert asked | {"consistent-hash"} <= set(ROUTERS)


def test_presets_set_parameters_that_their_policies_have() -> None:
    presets = tomllib.loads((files("kvbench") / "routers" / "presets.toml").read_text("utf-8"))
    for name, preset in presets.items():
        policy = REGISTRY.get(RouterPolicySpec, preset["policy"])
        assert policy.parse_params(preset["params"]), name
        defaults = {param.name: param.default for param in REGISTRY.get(RouterPolicySpec, name).params}
        assert defaults == policy.parse_params(preset["params"]), name


def test_a_preset_can_be_varied() -> None:
    spec = REGISTRY.get(RouterPolicySpec, "dynamo-kv@1.4")
    assert spec.parse_params({"temperature": 0.5})["temperature"] == 0.5
    with pytest.raises(kvbench.ConfigError, match=r"router policy dynamo-kv@1\.4: unknown parameter 'heat'"):
        spec.parse_params({"heat": 1})


def test_every_signal_and_every_rule_that_can_be_named_is_there() -> None:
    known = Load(LoadView(2), None)
    assert all(len(known.signal(name)) == 2 for name in SIGNALS)
    assert all(Ties(rule, known, RandomStream(1)).highest(np.array([0, 1])) == 1 for rule in TIE_RULES)


def test_listing_routers_imports_none_of_them() -> None:
    code = (
        "import sys, kvbench.plugins as p, kvbench.specs as s\n"
        "p.load_registry(autoload=False).specs(s.RouterPolicySpec)\n"
        "assert 'kvbench.routers' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("trace", "tokens", "load"), [("conversation", 0.357, 1.01), ("synthetic", 0.650, None)])
def test_missing_plus_load_reaches_the_rates_of_the_reference(
    mooncake: Any, trace: str, tokens: float, load: float | None
) -> None:
    """Router trap of traces.md 3.2: 10 workers × 5,859 blocks, partial last blocks cached."""
    settings: dict[str, Any] = {"workers": 10, "capacity": 5_859, "tails": "keep", "belady": "off"}
    result = kvbench.replay(
        mooncake(trace), router="missing-plus-load", registry=REGISTRY, keep_requests=True, **settings
    )
    assert result.rates["token"] == pytest.approx(tokens, abs=0.001)
    assert result.requests is not None
    if load is not None:
        kept = result.requests
        computed = pa.compute.subtract(kept["input_tokens"].cast(pa.int64()), kept["hit_tokens"].cast(pa.int64()))
        totals = (
            pa.table({"worker": kept["worker"], "computed": computed})
            .group_by("worker")
            .aggregate([("computed", "sum")])["computed_sum"]
        )
        assert pa.compute.max(totals).as_py() / pa.compute.mean(totals).as_py() == pytest.approx(load, abs=0.005)


def test_the_longest_match_alone_sends_a_whole_trace_to_one_worker(mooncake: Any) -> None:
    """Router trap of traces.md 3.2: all prompts of the trace share their first block."""
    settings: dict[str, Any] = {"workers": 10, "capacity": 5_859, "tails": "keep", "belady": "off"}
    router = "max-prefix,fallback=ties,ties=least-assigned"
    for name, tokens, load in (("conversation", 0.1382, 10.0), ("synthetic", 0.651, 1.12)):
        result = kvbench.replay(mooncake(name), router=router, registry=REGISTRY, **settings)
        assert result.rates["token"] == pytest.approx(tokens, abs=0.001)
        assert result.summary["workers"]["max_over_mean_input_tokens"] == pytest.approx(load, abs=0.005)


def test_a_preset_brings_the_index_of_the_original_unless_the_run_names_one(make_trace: Any) -> None:
    trace = make_trace([[i % 20, 100 + i] for i in range(200)])
    settings: dict[str, Any] = {"workers": 4, "capacity": 4, "router": "ray-prefix", "registry": REGISTRY}
    guessed = kvbench.replay(trace, **settings)
    assert guessed.manifest["config"]["index"]["mode"] == "approximate"
    told = kvbench.replay(trace, **settings, index={"mode": "events"})
    assert told.manifest["config"]["index"] == {"mode": "events", "copies": "set"}
    stale = [result.summary["routing"]["stale_tokens"] for result in (guessed, told)]
    assert stale[0] > 0 == stale[1]
