"""Whether the system kept up with what arrived: the verdict on a timed replay, with its reason.

The requests that count, in the order of their arrival, are cut into thirds. A request's wait is its queue time; of one
that is unfinished, the time from its arrival to its first step, or to the end of the run. The verdict is made of these
waits and of :data:`SIGNALS`, see :data:`STATES`.

There is none with fewer than :data:`MIN_REQUESTS` requests (chance looks like growth), or if all arrive at once. The
names are those of BLIS, the rule is kvbench's own. Of 1,000 requests at one server (M/M/1) it calls OVERLOADED none
at 90 % of its capacity, 8 of 10 at 110 % and all at 150 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kvbench.results.percentiles import exact_sum
from kvbench.results.rates import ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

MIN_REQUESTS = 100
TIMES_FIRST = 2
GROWTH = 0.05
DRAIN = 0.05

SIGNALS: Mapping[str, str] = {
    "growth": "by what the mean wait of the last third exceeds that of the first, for each second between their mean "
    "arrivals: 0.1 where 110 requests a second meet a system that can serve 100",
    "drain": "time from the last arrival until nobody waits any more, over the time of all arrivals",
}

STATES: Mapping[str, str] = {
    "OVERLOADED": f"the mean wait rises from third to third, is {TIMES_FIRST} times that of the first third or more in "
    f"the last and longer than the rest of TTFT, and grows by {GROWTH:g} or more",
    "BACKLOGGED": "not so, but requests wait longer than the rest of their TTFT takes (fetch and prefill, on average), "
    f"or drain is {DRAIN:g} or more",
    "STABLE": "neither",
}
"""Verdict, and when it is given; the first one that fits."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state`` is None where nothing can be said. Waits are means in nanoseconds; ``third_waits_ns`` by arrival."""

    state: str | None
    reason: str
    requests: int
    third_waits_ns: tuple[float, ...] | None = None
    wait_ns: float | None = None
    rest_of_ttft_ns: float | None = None
    growth: float | None = None
    drain: float | None = None


def judge(arrival_ns: Int64s, wait_ns: Int64s, rest_of_ttft_ns: float | None) -> Verdict:
    """The verdict on requests that arrived at ``arrival_ns`` and waited ``wait_ns``; ``rest_of_ttft_ns`` is the mean of
    fetch and prefill over those that are done, None if none is."""
    count = len(arrival_ns)
    if count < MIN_REQUESTS:
        return Verdict(None, f"{count:,} requests are too few: it takes {MIN_REQUESTS}", count)
    order = np.argsort(arrival_ns, kind="stable")
    arrival_ns, wait_ns = arrival_ns[order], wait_ns[order]
    span = int(arrival_ns[-1] - arrival_ns[0])
    third = count // 3
    parts = (slice(0, third), slice(third, count - third), slice(count - third, count))
    first, middle, last = (_mean(wait_ns[part]) for part in parts)
    gap = _mean(arrival_ns[parts[2]]) - _mean(arrival_ns[parts[0]])
    if span == 0 or gap == 0:
        return Verdict(None, "all requests arrive at once: there is no rate to keep up with", count)
    rest = rest_of_ttft_ns or 0.0
    verdict = Verdict(
        None,
        "",
        count,
        third_waits_ns=(first, middle, last),
        wait_ns=_mean(wait_ns),
        rest_of_ttft_ns=rest_of_ttft_ns,
        growth=(last - first) / gap,
        drain=max(int((arrival_ns + wait_ns).max()) - int(arrival_ns[-1]), 0) / span,
    )
    state, reason = _state(verdict, (first, middle, last), rest)
    return replace(verdict, state=state, reason=reason)


def _mean(values: Int64s) -> float:
    return exact_sum(values) / len(values)


def _state(found: Verdict, thirds: tuple[float, float, float], rest: float) -> tuple[str, str]:
    first, middle, last = thirds
    growth, drain, wait = found.growth or 0.0, found.drain or 0.0, found.wait_ns or 0.0
    rises = first < middle < last and last >= TIMES_FIRST * first and last > rest
    if rises and growth >= GROWTH:
        return "OVERLOADED", f"each second of arrivals adds {1e3 * growth:,.0f} ms of waiting, from first to last"
    part = ratio(wait, wait + rest) or 0.0
    if wait > rest:
        return "BACKLOGGED", f"{100 * part:.0f} % of the mean TTFT is waiting, which does not grow all the time"
    if drain >= DRAIN:
        return (
            "BACKLOGGED",
            f"the queue drains for {100 * drain:.0f} % of the time of all arrivals after the last of them",
        )
    return "STABLE", f"{100 * part:.0f} % of the mean TTFT is waiting, and it does not grow"
