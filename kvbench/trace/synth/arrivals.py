"""When requests or sessions of a synthetic workload start.

``poisson``     gaps are exponential: a coefficient of variation of 1.
``gamma``       gaps have the coefficient of variation ``cv``, the "burstiness" of serving benchmarks being
                1 / cv²: above 1 starts come in bursts, below 1 they are more even than Poisson's.
``uniform``     all gaps are alike.
``trace:FILE``  the gaps of another trace, from its first arrival on, over again when they are used up (one
                mean gap after the last); with ``rate`` they are stretched to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError
from kvbench.trace.columns import numbers
from kvbench.trace.reader import open_trace
from kvbench.trace.synth.draw import SMALLEST, exponential
from kvbench.trace.synth.limits import nanoseconds, too_late
from kvbench.units import MAX_NS, NS_PER_S

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

KINDS = ("poisson", "gamma", "uniform")
TRACE = "trace:"
_STANDARD_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalParams:
    """``rate`` starts a second (None: the workload's default, or the file's own), ``arrivals`` how they are
    spread, ``cv`` of the gaps for ``gamma``."""

    arrivals: str = "poisson"
    rate: float | None = None
    cv: float | None = None

    def check_arrivals(self, workload: str) -> None:
        """Raise ConfigError for what no arrivals can be made from."""
        where = f"workload {workload}"
        if self.arrivals not in KINDS and not self.arrivals.startswith(TRACE):
            raise ConfigError(f"{where}: arrivals = {self.arrivals!r} is not one of {', '.join(KINDS)}, trace:FILE")
        if self.arrivals == "gamma" and self.cv is None:
            raise ConfigError(f"{where}: arrivals = gamma needs cv, the coefficient of variation of the gaps")
        if self.arrivals != "gamma" and self.cv is not None:
            raise ConfigError(f"{where}: cv has no effect with arrivals = {self.arrivals}; it is for gamma")
        for name in ("rate", "cv"):
            value = getattr(self, name)
            if value is None:
                continue
            if not value > 0:
                raise ConfigError(f"{where}: {name} = {value} must be above 0")
            if not math.isfinite(value):
                raise ConfigError(f"{where}: {name} = {value} must be a finite number")


def start_times_ns(
    workload: str, params: ArrivalParams, rng: random.Random, default_rate: float, *, goes_on: str, advice: str
) -> Iterator[int]:
    """Times of starts, rising, without end. Raises ConfigError for one that 64 bits do not hold, and
    TraceError for a trace that cannot be read or has no gaps."""
    if params.arrivals.startswith(TRACE):
        yield from _recorded(workload, params, goes_on=goes_on, advice=advice)
        return
    mean = 1 / (params.rate or default_rate)
    now_s = 0.0
    while True:
        if params.arrivals == "uniform":
            now_s += mean
        elif params.cv is None:
            now_s += exponential(rng, mean)
        else:
            shape = params.cv**-2
            now_s += gamma(rng, shape) * mean / shape
        yield nanoseconds(workload, now_s, goes_on=goes_on, advice=advice)


def gamma(rng: random.Random, shape: float) -> float:
    """A gamma variate of scale 1 (Marsaglia and Tsang 2000)."""
    if shape < 1:
        boost: float = (1 - rng.random()) ** (1 / shape)
        return gamma(rng, shape + 1) * boost
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        normal = _STANDARD_NORMAL.inv_cdf(max(rng.random(), SMALLEST))
        v = (1 + c * normal) ** 3
        if v > 0 and math.log(1 - rng.random()) < normal * normal / 2 + d - d * v + d * math.log(v):
            return d * v


def _recorded(workload: str, params: ArrivalParams, *, goes_on: str, advice: str) -> Iterator[int]:
    path = params.arrivals.removeprefix(TRACE)
    first, last, rows = None, 0, 0
    for batch in open_trace(path).batches():
        arrivals = numbers(batch.column("arrival_ns"))
        first = int(arrivals[0]) if first is None else first
        last, rows = int(arrivals[-1]), rows + len(arrivals)
    if first is None or last == first:
        raise ConfigError(f"workload {workload}: {path} has no two arrivals at different times, so it has no rate")
    mean_ns = (last - first) / (rows - 1)
    stretch = 1.0 if params.rate is None else NS_PER_S / (params.rate * mean_ns)
    offset = 0
    while True:
        for batch in open_trace(path).batches():
            for arrival in numbers(batch.column("arrival_ns")).tolist():
                at = arrival - first + offset
                at = at if stretch == 1.0 else round(at * stretch)
                if at > MAX_NS:
                    raise too_late(workload, goes_on=goes_on, advice=advice)
                yield at
        offset += last - first + round(mean_ns)
