"""Routers that weigh the blocks to be computed against load. Cost: O(workers) a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.routers.base import Router
from kvbench.routers.terms import tier_weights, weighted
from kvbench.routing.max_prefix import MaxPrefix as CompiledMaxPrefix

if TYPE_CHECKING:
    from kvbench.routers.base import Scores
    from kvbench.routing import RouterContext, RouteRequest, RouterPolicy


class MaxPrefix(Router):
    """The longest prefix, each block counted with the weight of the fastest tier that holds it.

    Weights ``gpu``, ``cpu`` and ``other`` are of the fastest tier, the one below, and all others.
    ``fallback``  who serves a request that nobody holds: ``random``, ``round-robin``, or who wins by ``ties``.

    Source: kvbench semantics §8.2.
    """

    wants = ("tiers",)

    def __init__(
        self,
        context: RouterContext,
        *,
        gpu: float = 1.0,
        cpu: float = 1.0,
        other: float = 1.0,
        fallback: str = "random",
        ties: str = "random",
    ) -> None:
        super().__init__(context, ties=ties)
        self.tier_weights = tier_weights(self.tiers, first=gpu, second=cpu, rest=other)
        self.fallback = fallback
        self._turn = -1

    def choose(self, request: RouteRequest) -> int:
        if request.best == 0 and self.fallback == "random":
            return self.random.below(self.workers)
        if request.best == 0 and self.fallback == "round-robin":
            self._turn = (self._turn + 1) % self.workers
            return self._turn
        return super().choose(request)

    def score(self, request: RouteRequest) -> Scores:
        return weighted(self.tier_overlap, self.tier_weights)


def make_max_prefix(context: RouterContext, *, fallback: str, ties: str, **weights: float) -> RouterPolicy:
    """MaxPrefix: the compiled one where all tiers weigh the same and ties are drawn."""
    if ties == "random" and fallback != "ties" and set(weights.values()) == {1.0}:
        return CompiledMaxPrefix(context, fallback=fallback)
    return MaxPrefix(context, fallback=fallback, ties=ties, **weights)


class MissingPlusLoad(Router):
    """The fewest missing blocks, plus the worker's load, ``per_block`` tokens of which count as a block.

    Load is what the router has sent there since the start: tokens that were to be computed.

    Source: kvbench; the plainest rule that does not follow a prefix that all prompts share to one worker.
    """

    def __init__(self, context: RouterContext, *, per_block: float = 5_120.0, ties: str = "random") -> None:
        super().__init__(context, ties=ties)
        self.per_block = per_block
        self.computed = np.zeros(context.workers, dtype=np.int64)

    def choose(self, request: RouteRequest) -> int:
        worker = super().choose(request)
        hit = int(self.overlap[worker]) * (self.context.block_tokens or 1)
        self.computed[worker] += max(request.tokens - hit, 0)
        return worker

    def score(self, request: RouteRequest) -> Scores:
        return self.overlap - self.computed / self.per_block


class MooncakeTtft(Router):
    """The shortest time to the first token: the prefill that is queued, plus that of what is missing.

    Times are counted in tokens to be prefilled. Where the longest prefix that anybody holds is more than
    ``balancing_threshold`` times the worker's own, it is fetched instead: a token takes 1 / ``transfer_ratio``
    of the time that it takes to prefill. 0: nothing is ever fetched, as in an order replay.

    Source: Qin et al., "Mooncake", FAST'25, algorithm 1; its thresholds are parameters without defaults.
    """

    def __init__(
        self,
        context: RouterContext,
        *,
        balancing_threshold: float = 0.0,
        transfer_ratio: float = 10.0,
        ties: str = "random",
    ) -> None:
        super().__init__(context, ties=ties)
        self.balancing_threshold = balancing_threshold
        self.transfer_ratio = transfer_ratio

    def score(self, request: RouteRequest) -> Scores:
        size = self.context.block_tokens or 1
        own = self.overlap.astype(np.float64)
        queued = self.known.prefill_blocks.astype(np.float64)
        local = queued + request.blocks - own
        if not self.balancing_threshold:
            return -size * local
        far = request.best > self.balancing_threshold * own
        fetched = queued + request.blocks - request.best + (request.best - own) / self.transfer_ratio
        return -size * np.where(far, fetched, local)
