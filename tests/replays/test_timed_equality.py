"""Where service takes no time, timed replay hits what order replay hits (semantics §13, issue of timed replay)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbench
from kvbench.plugins import load_registry
from kvbench.results.requests import COMPUTED

BLOCK = 10
INSTANT = "fixed,prefill_ms_per_token=0,decode_ms=0"

# The chain that ends in a node of a binary tree: every id brings all its ancestors.
chain = st.integers(1, 2**7).map(lambda leaf: [leaf >> up for up in reversed(range(leaf.bit_length()))])
chains = st.lists(chain, min_size=1, max_size=30)
policies = st.sampled_from(["lru", "fifo", "arc", "s3-fifo", "slru", "lfu", "leaf-lru", "w-tinylfu", "sieve", "2q"])


@st.composite
def stacks(draw: Any) -> dict[str, Any]:
    """Some workers, a GPU that holds any one request, and up to two tiers below."""
    workers = draw(st.integers(1, 3))
    names = ["gpu", "cpu", "disk"][: draw(st.integers(1, 3))]
    tiers: list[dict[str, Any]] = []
    for level, name in enumerate(names):
        tier: dict[str, Any] = {"name": name, "capacity": draw(st.integers(8, 30)), "policy": draw(policies)}
        if level and draw(st.booleans()):
            tier["touch_on"] = draw(st.sampled_from(["hit", "never"]))
        if level == len(names) - 1 and level and workers > 1 and draw(st.booleans()):
            tier["scope"] = "cluster"
        tiers.append(tier)
    placement = draw(st.sampled_from(["inclusive", "exclusive"])) if len(names) > 1 else "inclusive"
    router = {"router": draw(st.sampled_from(["round-robin", "max-prefix", "random"]))} if workers > 1 else {}
    return {"tiers": tiers, "placement": placement, "workers": workers, **router}


def replayed(trace: pa.Table, **kwargs: Any) -> kvbench.ReplayResult:
    return kvbench.replay(trace, keep_requests=True, registry=load_registry(autoload=False), **kwargs)


NAMES = [column.name for column in COMPUTED]


@settings(deadline=None)
@given(chains, stacks(), st.booleans())
def test_timed_replay_without_time_is_order_replay(
    make_trace: Callable[..., pa.Table],
    rows: list[list[int]],
    stack: dict[str, Any],
    apart: bool,
) -> None:
    """Every figure of every request, every counter of every tier, whether requests come together or apart."""
    arrival_ns = pa.array([i * 1000 if apart else 0 for i in range(len(rows))], pa.int64())
    trace = make_trace(rows, arrival_ns=arrival_ns)
    order = replayed(trace, **stack)
    timed = replayed(trace, **stack, compute=INSTANT)
    assert timed.requests is not None
    assert order.requests is not None
    assert timed.requests.select(NAMES).equals(order.requests.select(NAMES))
    for name in ("rates", "infinite_rates", "misses", "blocks"):
        assert timed.summary[name] == order.summary[name], name
    assert set(timed.requests["status"].to_pylist()) == {"done"}
    assert timed.requests["end_ns"].to_pylist() == timed.requests["arrival_ns"].to_pylist()
