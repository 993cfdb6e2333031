"""How even the load of the workers is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.results.rates import ratio

if TYPE_CHECKING:
    from kvbench.results.totals import Totals

EVENNESS = {
    "max_over_mean_requests": "most requests of a worker over the mean of all",
    "max_over_mean_input_tokens": "the same of prompt tokens",
    "max_over_mean_computed_tokens": "the same of prompt tokens that did not hit, which are what a worker computes",
}
"""Figure, and what it says."""


def evenness(totals: Totals) -> dict[str, float | None]:
    """The figures of a run: 1 where all workers have as much, None where nobody has anything."""
    loads = (
        totals.worker_requests,
        totals.worker_input_tokens,
        totals.worker_input_tokens - totals.worker_hit_tokens,
    )
    return {
        name: ratio(int(load.max()) * len(load), int(load.sum())) for name, load in zip(EVENNESS, loads, strict=True)
    }
