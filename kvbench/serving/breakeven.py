"""Load or recompute: from how many tokens on does it pay to load their KV from a device?

Loading n tokens takes ``latency + (fixed + bytes per token · n) / bandwidth``, one read on an idle
device; recomputing them ``n / prefill rate``. Both are straight lines, so they cross once or never:
a device that takes longer for each token than the prefill does never pays. The comparison is exact
(fractions) and covers latency alone: prefill occupies the engine while a load can overlap, and N
loads on one link take N times as long.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from kvbench.serving.device import Device


def break_even_tokens(
    device: Device, bytes_per_token: int, prefill_tokens_per_s: float, *, fixed_bytes: int = 0
) -> float | None:
    """How many tokens take as long to load from ``device`` as to recompute; beyond it loading is
    faster. None: loading never pays. 0.0: it always does.

    ``bytes_per_token``       bytes of KV of one token.
    ``prefill_tokens_per_s``  how fast they are recomputed.
    ``fixed_bytes``           bytes to load whatever the length (constant state of a request).
    """
    exact = _break_even(device, bytes_per_token, prefill_tokens_per_s, fixed_bytes)
    return None if exact is None else float(exact)


def loads(
    tokens: int, device: Device, bytes_per_token: int, prefill_tokens_per_s: float, *, fixed_bytes: int = 0
) -> bool:
    """Whether load-or-recompute loads a hit of ``tokens``: only if that is strictly faster."""
    exact = _break_even(device, bytes_per_token, prefill_tokens_per_s, fixed_bytes)
    return exact is not None and tokens > exact


def break_even_bytes_per_s(bytes_per_token: int, prefill_tokens_per_s: float) -> float:
    """The bandwidth in bytes/s that a device must exceed for loading to pay at any length."""
    return float(bytes_per_token * _prefill_rate(prefill_tokens_per_s))


def describe_break_even(
    device: Device, bytes_per_token: int, prefill_tokens_per_s: float, *, fixed_bytes: int = 0
) -> str:
    """The verdict in one sentence, for reports."""
    exact = _break_even(device, bytes_per_token, prefill_tokens_per_s, fixed_bytes)
    if exact is not None:
        first = math.floor(exact) + 1
        return f"{device.name}: loading beats recomputing from {first:,} token{'s' * (first != 1)} on"
    load_us = Fraction(bytes_per_token * 10**6, device.read_bandwidth_bytes_per_s)
    compute_us = 10**6 / _prefill_rate(prefill_tokens_per_s)
    return (
        f"{device.name}: loading never beats recomputing: a token takes {float(load_us):.4g} µs to load "
        f"and {float(compute_us):.4g} µs to recompute"
    )


def _break_even(device: Device, bytes_per_token: int, prefill_tokens_per_s: float, fixed_bytes: int) -> Fraction | None:
    if bytes_per_token < 1 or fixed_bytes < 0:
        raise ConfigError(
            f"{bytes_per_token} bytes per token and {fixed_bytes} fixed bytes: a token has at least one byte of KV, "
            "and nothing has fewer than none"
        )
    recompute_s = 1 / _prefill_rate(prefill_tokens_per_s)
    load_s = Fraction(bytes_per_token, device.read_bandwidth_bytes_per_s)
    if load_s >= recompute_s:
        return None
    start_s = Fraction(device.read_latency_ns, NS_PER_S) + Fraction(fixed_bytes, device.read_bandwidth_bytes_per_s)
    return start_s / (recompute_s - load_s)


def _prefill_rate(prefill_tokens_per_s: float) -> Fraction:
    if not (math.isfinite(prefill_tokens_per_s) and prefill_tokens_per_s > 0):
        raise ConfigError(f"a prefill of {prefill_tokens_per_s!r} tokens/s must be a positive, finite rate")
    return Fraction(prefill_tokens_per_s)
