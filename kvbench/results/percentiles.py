"""Percentiles by named methods, and what else there is to say of many values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]

METHODS: Mapping[str, str] = {"linear": "linear", "nearest-rank": "inverted_cdf"}
"""Method → NumPy's name of it (Hyndman and Fan, types 7 and 1). Of [10, 20, 30] the 99th percentile is 29.8 by
``linear``, which interpolates, and 30 by ``nearest-rank``: the value below or at which 99 % of the values lie."""

PERCENTILES = (50, 75, 90, 95, 99)


def percentile(values: Values, percent: float, method: str = "linear") -> float | None:
    """The ``percent``-th percentile (0 to 100) of ``values``; None of none. Raises ArgumentError for an unknown
    method."""
    if len(values) == 0:
        return None
    return float(np.percentile(values, percent, method=_numpy_method(method)))


def distribution(values: Values, *, missing: int = 0, method: str = "linear") -> dict[str, Any]:
    """``n``, ``missing`` (requests without a value, which are in no other figure), ``mean``, ``std`` (of these values,
    n in the denominator), ``min``, ``p50`` … ``p99`` and ``max``; all but the counts None where there is no value.

    Mean and deviation are rounded once, so they are the same on every machine.
    """
    count = len(values)
    figures: dict[str, Any] = {"n": count, "missing": missing}
    names = [f"p{percent}" for percent in PERCENTILES]
    if count == 0:
        return figures | dict.fromkeys(["mean", "std", "min", *names, "max"])
    total = exact_sum(values) if values.dtype == np.int64 else math.fsum(values.tolist())
    mean = total / count
    found: list[float] = np.percentile(values, PERCENTILES, method=_numpy_method(method)).tolist()
    return {
        **figures,
        "mean": mean,
        "std": math.sqrt(math.fsum(np.square(values - mean).tolist()) / count),
        "min": values.min().item(),
        **{name: float(value) for name, value in zip(names, found, strict=True)},
        "max": values.max().item(),
    }


def exact_sum(values: npt.NDArray[Any]) -> int:
    """The sum of int64 ``values``, which need not fit into 64 bits."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _numpy_method(method: str) -> Any:
    if method not in METHODS:
        raise ArgumentError(f"percentile method {method!r} is unknown; choose one of {', '.join(METHODS)}")
    return METHODS[method]
