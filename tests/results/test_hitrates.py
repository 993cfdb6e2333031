"""The rates that serving systems print, from one replay."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvbench
from kvbench.results.hitrates import HIT_RATES

CHAT = Path(__file__).parents[2] / "traces" / "chat.arrow"
TIERS = ["gpu,capacity=400", "cpu,capacity=1500"]
BLOCK_TOKENS = 64


def test_the_tiers_behind_hold_by_themselves_what_they_would_hit_alone() -> None:
    """With through-writes what the CPU holds does not depend on the GPU."""
    both = kvbench.replay(CHAT, tiers=TIERS, keep_requests=True)
    alone = kvbench.replay(CHAT, tiers=["cpu,capacity=1500"], keep_requests=True)
    assert both.requests is not None
    assert alone.requests is not None
    assert both.requests["behind_blocks"] == alone.requests["hit_blocks"]


def test_each_rate_is_its_formula_over_the_requests() -> None:
    result = kvbench.replay(CHAT, tiers=TIERS, keep_requests=True)
    assert result.requests is not None
    prompt = device = external = lookup = aligned = 0
    for row in result.requests.to_pylist():
        prompt += row["input_tokens"]
        aligned += row["input_tokens"] // BLOCK_TOKENS * BLOCK_TOKENS
        device += row["hit_gpu_blocks"] * BLOCK_TOKENS
        external += row["hit_cpu_blocks"] * BLOCK_TOKENS
        lookup += row["behind_blocks"] * BLOCK_TOKENS
    assert result.summary["serving"]["hit_rates"] == pytest.approx(
        {
            "vllm_local": device / prompt,
            "vllm_external": external / (prompt - device),
            "lmcache_lookup": lookup / prompt,
            "lmcache_retrieve": 1.0,
            "lmcache_mp_lookup": lookup / aligned,
            "lmcache_simulator": lookup / prompt,
        }
    )
    assert result.summary["serving"]["gap_tokens"] == 0


def test_failing_gets_are_the_gap_between_what_was_promised_and_delivered(tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text('[[fault]]\nkind = "get"\ntier = "cpu"\nshare = 0.1\n')
    result = kvbench.replay(CHAT, tiers=TIERS, faults=str(faults), block_bytes=1000, keep_requests=True)
    assert result.requests is not None
    lost = sum(result.requests["lost_blocks"].to_pylist())
    serving = result.summary["serving"]
    assert serving["gap_tokens"] == lost * BLOCK_TOKENS > 0
    assert serving["wasted_bytes"] == lost * 1000
    assert 0 < serving["hit_rates"]["lmcache_retrieve"] < 1


def test_there_are_none_without_a_tier_behind_the_first() -> None:
    assert "serving" not in kvbench.replay(CHAT, capacity=400).summary
    assert "serving" not in kvbench.replay(CHAT, tiers=TIERS[:1]).summary
    assert len({rate.name for rate in HIT_RATES}) == len(HIT_RATES)
