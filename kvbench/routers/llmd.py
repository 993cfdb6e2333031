"""The scorers of llm-d's endpoint picker, added up with weights. Cost: O(workers · scorers) a request.

Source: llm-d/llm-d-inference-scheduler pkg/epp/framework/plugins/scheduling/scorer, 2026-05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.routers.base import Router
from kvbench.routers.terms import share, spread, tier_weights, weighted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.routers.base import Scores
    from kvbench.routing import RouterContext, RouteRequest


class LlmdProfile(Router):
    """The worker with the highest sum of weight · score, scores being in 0…1; equal ones by an even draw.

    ``prefix``          overlap over the blocks of the prompt.
    ``precise_prefix``  overlap in blocks, each with the weight of the fastest tier that has it, between the
                        least (0) and the most (1) of all workers. Weights ``gpu``, ``cpu``, ``other``.
    ``queue``           requests that wait, between the most (0) and the fewest (1).
    ``running``         requests that run, likewise.
    ``kv_utilization``  1 - share of the KV memory that is used.
    ``load_aware``      0.5 · (1 - waiting / ``queue_threshold``), waiting counting up to the threshold.
    ``active``          requests in flight by the router's own count: 1 if none, else (most - these) / most.
    ``token_load``      1 - tokens in flight / ``token_queue``, at least 0.
    ``no_hit``          for a request that nobody holds anything of: 1 for the worker that had such a
                        request longest ago (or never), 0 for the last one; 0.5 for all other requests.
    """

    wants = ("tiers",)

    def __init__(
        self,
        context: RouterContext,
        *,
        gpu: float = 1.0,
        cpu: float = 0.8,
        other: float = 1.0,
        queue_threshold: int = 128,
        token_queue: int = 4_194_304,
        ties: str = "random",
        **weights: float,
    ) -> None:
        super().__init__(context, ties=ties)
        self.tier_weights = tier_weights(self.tiers, first=gpu, second=cpu, rest=other)
        self.queue_threshold = queue_threshold
        self.token_queue = token_queue
        self.weights = {name: weight for name, weight in weights.items() if weight}
        self.cold_at = np.full(context.workers, -1, dtype=np.int64)
        self.scorers: dict[str, Callable[[RouteRequest], Scores]] = {
            "prefix": lambda request: share(self.overlap, request.blocks),
            "precise_prefix": self._precise_prefix,
            "queue": lambda _: spread(self.known.waiting),
            "running": lambda _: spread(self.known.running),
            "kv_utilization": lambda _: 1 - self.known.kv_usage,
            "load_aware": self._load_aware,
            "active": self._active,
            "token_load": lambda _: 1 - np.minimum(self.known.tokens / self.token_queue, 1),
            "no_hit": self._no_hit,
        }

    def score(self, request: RouteRequest) -> Scores:
        total = np.zeros(self.workers)
        for name, weight in self.weights.items():
            total += weight * self.scorers[name](request)
        return total

    def choose(self, request: RouteRequest) -> int:
        worker = super().choose(request)
        if request.best == 0:
            self.cold_at[worker] = request.number
        return worker

    def _precise_prefix(self, request: RouteRequest) -> Scores:
        found = weighted(self.tier_overlap, self.tier_weights)
        return 1 - spread(found) if found.max() > found.min() else np.zeros(self.workers)

    def _load_aware(self, request: RouteRequest) -> Scores:
        waiting = np.minimum(self.known.waiting, self.queue_threshold)
        return 0.5 * (1 - waiting / self.queue_threshold)

    def _active(self, request: RouteRequest) -> Scores:
        active = self.known.requests
        most = max(int(active.max()), 1)
        return np.where(active == 0, 1.0, (most - active) / most)

    def _no_hit(self, request: RouteRequest) -> Scores:
        if request.best or self.workers == 1:
            return np.full(self.workers, 0.5)
        rank = np.empty(self.workers)
        rank[np.argsort(self.cold_at, kind="stable")] = np.arange(self.workers)
        return 1 - rank / (self.workers - 1)
