"""The latencies of requests from the matrix of times of a timed replay (semantics §9.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.replays.timecolumns import DONE, MISSING, TIMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

LATENCIES: Mapping[str, str] = {
    "ttft": "first token - intended arrival: a backlog counts",
    "queue": "of TTFT: waiting",
    "fetch": "of TTFT: fetching from lower tiers",
    "prefill": "of TTFT: computing the prompt; queue + fetch + prefill = TTFT",
    "tpot": "(E2E - TTFT) / (output - 1), output > 1; AIPerf's ITL",
    "e2e": "end - intended arrival",
}
"""Latency and its definition. They are of requests that are done, in nanoseconds."""

ITL_DEFINITION = "Σ(E2E - TTFT) / Σ(output - 1): over all gaps; vLLM's ITL"
"""Single gaps are not kept, so of the ITL there is the mean alone."""


def times_by_name(times: Int64s) -> dict[str, Int64s]:
    """The columns of a matrix of times (requests × len(TIMES)) by name, as views."""
    return {name: times[:, at] for at, name in enumerate(TIMES)}


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of some requests that are done. All are int64 but ``tpot_ns``, float64 and NaN with one token.

    ``decode_ns``, ``gaps``  E2E - TTFT and output - 1 (at least 0): what TPOT and ITL are made of.
    """

    ttft_ns: Int64s
    queue_ns: Int64s
    fetch_ns: Int64s
    prefill_ns: Int64s
    e2e_ns: Int64s
    decode_ns: Int64s
    gaps: Int64s
    tpot_ns: npt.NDArray[np.float64]

    @classmethod
    def of(cls, times: Int64s) -> Latencies:
        """The latencies of the rows of ``times``, all of which are done."""
        column = times_by_name(times)
        ttft = column["first_token_ns"] - column["arrival_ns"]
        decode = column["end_ns"] - column["first_token_ns"]
        gaps = np.maximum(column["generated_tokens"] - 1, 0)
        tpot = np.full(len(times), np.nan)
        np.divide(decode, gaps, out=tpot, where=gaps > 0)
        parts = column["queue_ns"], column["fetch_ns"], column["prefill_ns"]
        return cls(ttft, *parts, ttft + decode, decode, gaps, tpot)


def request_latencies(times: Int64s) -> tuple[Int64s, npt.NDArray[np.float64], Int64s]:
    """TTFT, TPOT and E2E of each row, whatever became of it; -1 and NaN where there is none: before the first token,
    and but for requests that are done."""
    column = times_by_name(times)
    done = column["status"] == DONE
    found = Latencies.of(times[done])
    ttft = np.where(column["first_token_ns"] >= 0, column["first_token_ns"] - column["arrival_ns"], MISSING)
    tpot, e2e = np.full(len(times), np.nan), np.full(len(times), MISSING, np.int64)
    tpot[done], e2e[done] = found.tpot_ns, found.e2e_ns
    return ttft, tpot, e2e
