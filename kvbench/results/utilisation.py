"""How busy workers and links were, in the whole run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kvbench.results.rates import ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.replays.timedfacts import LinkFacts, WorkerFacts


def worker_records(workers: Sequence[WorkerFacts], run_ns: int) -> dict[str, Any]:
    """``workers`` of a run of ``run_ns`` from the first arrival on: for each its counts, the share of the run in
    which it was busy, and prompt tokens a second of the time that it was: no more than its compute model allows."""
    busy = [worker.busy_ns for worker in workers]
    each = [
        {
            **dataclasses.asdict(worker),
            "utilisation": ratio(worker.busy_ns, run_ns),
            "prefill_tokens_per_busy_s": ratio(worker.prefill_tokens * 1e9, worker.busy_ns),
        }
        for worker in workers
    ]
    summed = {
        "utilisation": ratio(sum(busy), run_ns * len(busy)),
        "max_over_mean_busy": ratio(max(busy, default=0) * len(busy), sum(busy)),
    }
    return {"workers": {**summed, "each": each}}


def link_records(links: Sequence[LinkFacts], run_ns: int) -> list[dict[str, Any]]:
    """For each link its counts, the share of the run in which it moved something, and the bandwidth it then had: never
    more than it is configured to have."""
    return [
        {
            **dataclasses.asdict(link),
            "utilisation": ratio(link.busy_ns, run_ns),
            "achieved_bytes_per_s": ratio(link.moved_bytes * 1e9, link.busy_ns),
        }
        for link in links
    ]
