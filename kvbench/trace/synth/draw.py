"""Draws from distributions by inverse transform, one ``random()`` each."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

VOCABULARY = 32_000
OUTPUT_SIGMA = 0.7
"""Of the lengths of answers, in each workload."""

_STANDARD_NORMAL = NormalDist()
SMALLEST = 2.0**-53


def exponential(rng: random.Random, mean: float) -> float:
    return -mean * math.log1p(-rng.random())


def geometric(rng: random.Random, mean: float) -> int:
    """A count of at least 1 with the given mean (at least 1)."""
    if mean <= 1:
        return 1
    return 1 + int(math.log1p(-rng.random()) / math.log1p(-1 / mean))


def lognormal_count(rng: random.Random, mean: float, sigma: float) -> int:
    """A count of at least 1 whose logarithm has deviation ``sigma``; ``mean`` is that before rounding."""
    normal = _STANDARD_NORMAL.inv_cdf(max(rng.random(), SMALLEST))
    return max(1, round(math.exp(math.log(mean) - sigma * sigma / 2 + sigma * normal)))


def zipf_weights(count: int, exponent: float) -> list[float]:
    """Cumulative shares of ``count`` items whose popularity falls as rank to the power of ``-exponent``."""
    weights = [rank**-exponent for rank in range(1, count + 1)]
    total = math.fsum(weights)
    return [math.fsum(weights[: index + 1]) / total for index in range(count)]


def zipf_shares(count: int, exponent: float) -> list[float]:
    """Shares of ``count`` items whose popularity falls as rank to the power of ``-exponent``; they sum to 1."""
    weights = [rank**-exponent for rank in range(1, count + 1)]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def cumulated(shares: Sequence[float]) -> list[float]:
    """Cumulative shares, for :func:`pick`."""
    return list(accumulate(shares))


def expected_distinct(shares: Sequence[float], draws: float) -> float:
    """How many different items ``draws`` independent draws give on average: the sum of 1 - (1 - share)^draws."""
    return math.fsum(-math.expm1(draws * math.log1p(-share)) if share < 1 else 1.0 for share in shares)


def pick(rng: random.Random, cumulative: Sequence[float]) -> int:
    """An index, by cumulative shares."""
    return min(bisect_right(cumulative, rng.random()), len(cumulative) - 1)


def sample(rng: random.Random, count: int, size: int) -> list[int]:
    """``size`` different numbers below ``count``, every sequence of them equally likely."""
    moved: dict[int, int] = {}
    drawn = []
    for last in range(count - 1, count - 1 - size, -1):
        at = int(rng.random() * (last + 1))
        drawn.append(moved.get(at, at))
        moved[at] = moved.pop(last, last)
    return drawn


def token(rng: random.Random) -> int:
    """A token id below :data:`VOCABULARY`."""
    return int(rng.random() * VOCABULARY)
