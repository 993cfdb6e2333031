"""What holds for every policy that ships (semantics §13)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import kvbench
from kvbench.plugins import load_registry
from kvbench.specs import EvictionPolicySpec

SPECS = [spec for spec in load_registry(autoload=False).specs(EvictionPolicySpec) if spec.name != "keep"]
"""All that evict."""
COUNTS_BY_HASH = {"w-tinylfu", "kvbm-multilru"}
"""Policies that count uses in a sketch, which other ids fill otherwise."""

NAMES = {"session_id": ["a", "b", "c"], "tenant": ["x", "y"], "type": ["chat", "agent"]}


def rows() -> Iterator[tuple[int, list[int]]]:
    """300 requests of seven conversations that share their first two blocks and grow."""
    rng = np.random.Generator(np.random.PCG64(5))
    lengths = dict.fromkeys(range(7), 2)
    for _ in range(300):
        session = int(rng.integers(7))
        lengths[session] = lengths[session] + int(rng.integers(3)) if lengths[session] < 12 else 3
        yield session, [0, 1, *(100 * (session + 1) + depth for depth in range(lengths[session] - 2))]


def trace(rename: bool = False, shift_ns: int = 0) -> pa.Table:
    """The rows with every column that a policy may ask for."""
    made = list(rows())
    factor = 0x9E3779B97F4A7C15 if rename else 1  # odd, so different ids stay different
    count = len(made)
    table = pa.table(
        {
            "arrival_ns": pa.array([shift_ns + 10**9 * at for at in range(count)], pa.int64()),
            "input_tokens": pa.array([16 * len(ids) for _, ids in made], pa.uint32()),
            "output_tokens": pa.array([20] * count, pa.uint32()),
            "block_ids": pa.array([[(i * factor) % 2**64 for i in ids] for _, ids in made], pa.list_(pa.uint64())),
            "turn": pa.array([at % 5 for at in range(count)], pa.uint32()),
            "priority": pa.array([30 + 10 * (session % 2) for session, _ in made], pa.int32()),
            **{name: [values[session % len(values)] for session, _ in made] for name, values in NAMES.items()},
        }
    )
    facts = kvbench.open_trace(table, block_tokens=16).facts
    return table.replace_schema_metadata(dataclasses.replace(facts, dense=False).to_metadata())


def outcome(name: str, table: pa.Table, **settings: object) -> list[list[int]]:
    # Tenants are told apart by their keys; here they are one, or nothing would be shared.
    kept = table if name == "tenant-lru" else table.drop_columns(["tenant"])
    result = kvbench.replay(kept, policy=name, capacity=24, keep_requests=True, **settings)
    assert result.requests is not None
    return [result.requests[column].to_pylist() for column in ("hit_blocks", "resident_blocks", "evicted_blocks")]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_policy_gives_the_same_result_twice_and_at_another_time(spec: EvictionPolicySpec) -> None:
    first = outcome(spec.name, trace(), seed=3)
    assert first == outcome(spec.name, trace(), seed=3)
    assert first == outcome(spec.name, trace(shift_ns=10**15), seed=3)
    assert sum(first[2]) > 0


@pytest.mark.parametrize("spec", [s for s in SPECS if s.name not in COUNTS_BY_HASH], ids=lambda spec: spec.name)
def test_other_names_for_the_blocks_change_nothing(spec: EvictionPolicySpec) -> None:
    assert outcome(spec.name, trace()) == outcome(spec.name, trace(rename=True))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_cache_that_holds_everything_hits_as_an_infinite_one(spec: EvictionPolicySpec) -> None:
    table = trace().drop_columns(["tenant"]) if spec.name != "tenant-lru" else trace()
    result = kvbench.replay(table, policy=spec.name, capacity=4_000)
    if spec.name in {"ttl", "w-tinylfu", "tenant-lru"}:
        assert result.rates["token"] <= result.summary["infinite_rates"]["token"]
    else:
        assert result.rates == result.summary["infinite_rates"]


@pytest.mark.parametrize("spec", [s for s in SPECS if s.columns], ids=lambda spec: spec.name)
def test_policy_that_needs_a_column_says_so_before_the_run(spec: EvictionPolicySpec) -> None:
    needed = [column for column in spec.columns if column not in ("arrival_ns", "input_tokens")]
    if not needed:
        pytest.skip("needs only columns that every trace has")
    with pytest.raises(kvbench.ConfigError, match=rf"{spec.name} needs .*{needed[0]}"):
        kvbench.replay(trace().drop_columns([needed[0]]), policy=spec.name, capacity=24)
