"""Confidence intervals of a mean, and the stop rule that is made of one."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

BATCHES = 20
BATCH_VALUES = 50
"""The stop rule looks at so many batches of at least so many values each."""

DIGITS = 9
"""Digits behind the point of a quantile: the same on every machine, whatever its last bits."""


@lru_cache(maxsize=64)
def t_quantile(degrees: int) -> float:
    """The 0.975 quantile of Student's t with a whole number of ``degrees`` of freedom (at least 1): a mean and this
    many standard errors on both sides of it are a 95 % interval.

    For whole degrees the distribution is a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4); the quantile is
    found by bisection of the angle θ with tan θ = t/√degrees. NumPy and the standard library have none.
    """
    low, high = 0.0, math.pi / 2
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return round(math.sqrt(degrees) * math.tan(middle), DIGITS)
        low, high = (middle, high) if _two_sided(middle, degrees) < 0.95 else (low, middle)


def _two_sided(angle: float, degrees: int) -> float:
    """P(|T| < √degrees · tan ``angle``)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = total = cosine if odd else 1.0
    if degrees == 1:
        return 2 * angle / math.pi
    for k in range(2 + odd, degrees - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def mean_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean of independent ``values`` (at least one), their standard deviation (n - 1 in the denominator), and half
    the width of the 95 % interval of the mean, by Student's t; both None for one value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, None, None
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, deviation, t_quantile(count - 1) * deviation / math.sqrt(count)


def converged(values: npt.NDArray[np.int64], share: float) -> bool:
    """Whether the 95 % interval of the mean of ``values`` is no wider than ``share`` of the mean.

    ``values`` are in the order in which they arose and depend on each other, so the interval is that of the means of
    :data:`BATCHES` batches of equal length, which hardly do; what is left over at the front is left out. False
    with fewer than :data:`BATCHES` · :data:`BATCH_VALUES` values.
    """
    length = len(values) // BATCHES
    if length < BATCH_VALUES:
        return False
    batches = values[len(values) - length * BATCHES :].reshape(BATCHES, length)
    mean, _, half = mean_interval((batches.sum(axis=1) / length).tolist())
    return half is not None and 2 * half <= share * mean
