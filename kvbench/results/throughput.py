"""Throughput, and the work that it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.results.latency import times_by_name
from kvbench.results.rates import ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from kvbench.results.columns import RequestColumns

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

THROUGHPUT: Mapping[str, str] = {
    "requests": "requests done",
    "input_tokens": "tokens of their prompts",
    "output_tokens": "tokens of their answers",
    "total_tokens": "prompts and answers",
    "computed_tokens": "tokens of prompts that were computed, not taken from a cache",
}
"""What is counted a second of the duration: from the first arrival to the last end of the requests that count."""


@dataclass(slots=True)
class Throughput:
    """Sums over requests that are done."""

    first_arrival_ns: int | None = None
    last_end_ns: int | None = None
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(THROUGHPUT, 0))

    def add(self, columns: RequestColumns, times: Int64s, rows: Bools) -> None:
        """Add those of ``rows``, all of which are done."""
        if not rows.any():
            return
        named = times_by_name(times[rows])
        first, last = int(named["arrival_ns"].min()), int(named["end_ns"].max())
        self.first_arrival_ns = first if self.first_arrival_ns is None else min(first, self.first_arrival_ns)
        self.last_end_ns = last if self.last_end_ns is None else max(last, self.last_end_ns)
        prompts, answers = int(columns.input_tokens[rows].sum()), int(named["generated_tokens"].sum())
        added = (int(rows.sum()), prompts, answers, prompts + answers, int(named["computed_tokens"].sum()))
        for name, value in zip(THROUGHPUT, added, strict=True):
            self.sums[name] += value

    @property
    def duration_ns(self) -> int | None:
        """From the first arrival to the last end; None without requests."""
        if self.first_arrival_ns is None or self.last_end_ns is None:
            return None
        return self.last_end_ns - self.first_arrival_ns

    def record(self, duration_ns: int | None) -> dict[str, Any]:
        """The sums, and each a second of ``duration_ns``; rates are None where that is None or 0."""
        rates = {f"{name}_per_s": ratio(value * 1e9, duration_ns or 0) for name, value in self.sums.items()}
        return {"duration_ns": duration_ns, **self.sums, **rates}


WORK: Mapping[str, str] = {
    "computed_tokens": "tokens of prompts that were computed",
    "recomputed_tokens": "of these, tokens that had hit, or had been computed before",
    "preemptions": "times that a request lost its blocks",
    "preempted_requests": "requests that did",
    "declined_blocks": "hits below the GPU that were computed, as that was sooner than fetching them",
    "readmitted_blocks": "blocks found again after a preemption, which are in no hit rate",
}
"""What the requests that count cost, unfinished ones included."""


@dataclass(slots=True)
class Work:
    """The sums of :data:`WORK`."""

    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WORK, 0))

    def add(self, columns: RequestColumns, times: Int64s, rows: Bools) -> None:
        """Add those of ``rows``."""
        named = {name: np.maximum(values[rows], 0) for name, values in times_by_name(times).items()}
        needed = columns.input_tokens[rows] - columns.tokens_of(columns.hit_blocks)[rows]
        # At least one token of a prompt is computed, whatever had hit.
        again = np.maximum(named["computed_tokens"] - np.maximum(needed, 1), 0)
        added = {**named, "recomputed_tokens": again, "preempted_requests": named["preemptions"] > 0}
        for name in WORK:
            self.sums[name] += int(added[name].sum())

    def record(self) -> dict[str, Any]:
        """The sums, and the share of the work that was done for nothing."""
        return {
            **self.sums,
            "recomputed_share": ratio(self.sums["recomputed_tokens"], self.sums["computed_tokens"]),
        }
