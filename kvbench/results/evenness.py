"""What a router made of its workers: how even their load is, and what it cost (semantics §8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.results.rates import ratio

if TYPE_CHECKING:
    from kvbench.results.totals import Totals

ROUTING_FIGURES = {
    "max_over_mean_requests": "most requests of a worker over the mean",
    "max_over_mean_input_tokens": "the same of prompt tokens",
    "max_over_mean_computed_tokens": "the same of prompt tokens that did not hit",
    "routed_away_tokens": "prefix that some worker held, beyond what the index saw at the chosen one",
    "stale_tokens": "prefix that the index saw at the chosen worker and that did not hit",
}
"""Figure, and what it says."""


def routing_figures(totals: Totals, block_tokens: int | None) -> dict[str, Any]:
    """The figures of a run; of prefixes None with one worker, and without blocks.

    ``routed_away_tokens`` and ``stale_tokens`` are sums over all requests, in full blocks; below zero where
    the index saw more, or less, than there was.
    """
    requests = totals.worker_requests.tolist()
    tokens = totals.worker_input_tokens.tolist()
    computed = (totals.worker_input_tokens - totals.worker_hit_tokens).tolist()
    counts = totals.counts
    size = block_tokens if totals.workers > 1 else None
    best, predicted = counts["best_blocks"], counts["predicted_blocks"]
    return {
        "max_over_mean_requests": _uneven(requests),
        "max_over_mean_input_tokens": _uneven(tokens),
        "max_over_mean_computed_tokens": _uneven(computed),
        "routed_away_tokens": None if size is None else (best - predicted) * size,
        "stale_tokens": None if size is None else (predicted - counts["hit_blocks"]) * size,
    }


def _uneven(load: list[int]) -> float | None:
    return ratio(max(load) * len(load), sum(load))
