"""Load or recompute: where the two take the same time (E15 is a user's report)."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import ConfigError
from kvbench.serving.breakeven import break_even_bytes_per_s, break_even_tokens, describe_break_even, loads
from kvbench.serving.device import Device
from kvbench.serving.devices import make_device

LLAMA_8B = 131_072
"""Bytes of KV of a token of Llama-3 8B in 16 bits."""


def a_store(bandwidth_bytes_per_s: int = 10 * 10**9, latency_ns: int = 5_000_000) -> Device:
    return Device(
        name="store",
        medium="dfs",
        basis="nominal",
        read_bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        write_bandwidth_bytes_per_s=1,
        read_latency_ns=latency_ns,
        write_latency_ns=0,
    )


def test_e15_loading_and_recomputing_break_even() -> None:
    assert break_even_tokens(a_store(), LLAMA_8B, 5000) == pytest.approx(26.75, abs=0.005)


def test_e15_below_the_break_even_it_recomputes_and_beyond_it_loads() -> None:
    assert [loads(tokens, a_store(), LLAMA_8B, 5000) for tokens in (0, 1, 26, 27, 10_000)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert describe_break_even(a_store(), LLAMA_8B, 5000) == "store: loading beats recomputing from 27 tokens on"


def test_a_device_slower_for_each_token_than_the_prefill_never_pays() -> None:
    """S3 at 1 GB/s against a prefill of 36 µs a token."""
    s3 = make_device("s3")
    assert break_even_tokens(s3, LLAMA_8B, 27_778) is None
    assert not loads(10**9, s3, LLAMA_8B, 27_778)
    assert describe_break_even(s3, LLAMA_8B, 27_778) == (
        "s3: loading never beats recomputing: a token takes 131.1 µs to load and 36 µs to recompute"
    )


def test_a_tie_for_each_token_never_pays() -> None:
    tie = a_store(bandwidth_bytes_per_s=LLAMA_8B * 5000, latency_ns=0)
    assert break_even_tokens(tie, LLAMA_8B, 5000) is None
    assert not loads(1, tie, LLAMA_8B, 5000)


def test_without_latency_loading_pays_from_the_first_token() -> None:
    assert break_even_tokens(a_store(latency_ns=0), LLAMA_8B, 5000) == 0.0
    assert loads(1, a_store(latency_ns=0), LLAMA_8B, 5000)
    assert describe_break_even(a_store(latency_ns=0), LLAMA_8B, 5000).endswith("from 1 token on")


def test_a_tie_is_recomputed() -> None:
    """10 tokens: 1 ms to recompute, and 0.5 ms + 10 · 0.05 ms to load."""
    device = a_store(bandwidth_bytes_per_s=20_000_000, latency_ns=500_000)
    assert break_even_tokens(device, 1000, 10_000) == 10.0
    assert [loads(tokens, device, 1000, 10_000) for tokens in (10, 11)] == [False, True]


def test_fixed_bytes_delay_the_break_even() -> None:
    """As much as a latency of their transfer time would."""
    fixed = break_even_tokens(a_store(), LLAMA_8B, 5000, fixed_bytes=10_000_000)
    assert fixed == break_even_tokens(a_store(latency_ns=6_000_000), LLAMA_8B, 5000)


def test_the_break_even_bandwidth_is_what_the_prefill_makes() -> None:
    """8B at 36 µs a token: 3.6 GB/s."""
    assert break_even_bytes_per_s(LLAMA_8B, 1e6 / 36) == pytest.approx(3.64e9, rel=1e-3)


@given(
    tokens=st.integers(1, 10**6),
    bandwidth=st.integers(1, 10**13),
    latency=st.integers(0, 10**10),
    bytes_per_token=st.integers(1, 10**7),
    prefill=st.integers(1, 10**6),
)
def test_it_loads_exactly_when_loading_is_faster(
    tokens: int, bandwidth: int, latency: int, bytes_per_token: int, prefill: int
) -> None:
    load_s = Fraction(latency, 10**9) + Fraction(bytes_per_token * tokens, bandwidth)
    device = a_store(bandwidth, latency)
    assert loads(tokens, device, bytes_per_token, prefill) == (load_s < Fraction(tokens, prefill))


@pytest.mark.parametrize("prefill", [0, -1, float("inf"), float("nan")])
def test_a_prefill_rate_that_is_none_is_refused(prefill: float) -> None:
    with pytest.raises(ConfigError, match="must be a positive, finite rate"):
        break_even_tokens(a_store(), LLAMA_8B, prefill)


def test_a_token_without_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one byte"):
        break_even_tokens(a_store(), 0, 5000)
