"""Goodput: requests that meet all their objectives (SLOs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.results.rates import ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from kvbench.results.latency import Latencies

OBJECTIVES = ("ttft", "tpot", "e2e")
"""What may have a limit."""

GOODPUT_DEFINITION = "requests that meet all SLOs (≤, TPOT of one token is 0) a second of the duration"


class Goodput:
    """Counts the done requests that keep the limits ``slo`` (nanoseconds by objective, of :data:`OBJECTIVES`).

    Limits are inclusive, and the TPOT of an answer of one token counts as 0, both as in vLLM's benchmark.
    """

    def __init__(self, slo: Mapping[str, int]) -> None:
        self._limits = {name: slo[name] for name in OBJECTIVES if name in slo}
        self._met = dict.fromkeys(self._limits, 0)
        self._good = 0

    def add(self, found: Latencies) -> None:
        """Take in the latencies of requests that are done."""
        good = np.ones(len(found.ttft_ns), dtype=bool)
        for name, limit in self._limits.items():
            met = _kept(found, name, limit)
            self._met[name] += int(met.sum())
            good &= met
        self._good += int(good.sum())

    def record(self, done: int, arrived: int, duration_ns: int | None) -> dict[str, Any] | None:
        """The figures over ``done`` requests of ``arrived`` ones (rejected and unfinished ones among them); None
        without an objective."""
        if not self._limits:
            return None
        return {
            "requests": self._good,
            "requests_per_s": ratio(self._good * 1e9, duration_ns or 0),
            "share_of_done": ratio(self._good, done),
            "share_of_arrived": ratio(self._good, arrived),
            "slo": {
                name: {"limit_ns": limit, "met": self._met[name], "share_of_done": ratio(self._met[name], done)}
                for name, limit in self._limits.items()
            },
        }


def _kept(found: Latencies, name: str, limit: int) -> npt.NDArray[np.bool_]:
    if name == "tpot":
        return np.asarray(np.nan_to_num(found.tpot_ns) <= limit)
    return np.asarray((found.ttft_ns if name == "ttft" else found.e2e_ns) <= limit)
