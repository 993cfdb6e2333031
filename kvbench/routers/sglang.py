"""The cache-aware router of SGLang, and of Ray Serve, which follows it. Cost: O(workers) a request.

Both guess what is where from what they sent: run them with an approximate index to have them as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.routers.base import Router
from kvbench.routers.loads import two_of
from kvbench.routers.terms import is_imbalanced

if TYPE_CHECKING:
    from kvbench.routing import RouterContext, RouteRequest


class CacheAware(Router):
    """The best match if it is a good one, and while the load is even.

    Where the load is uneven (the largest more than ``abs_threshold`` over the least, and more than
    ``rel_threshold`` times it) the least loaded worker. Else, where the best match covers more than
    ``cache_threshold`` of the prompt, a worker with that match. Else by ``fallback``: ``least-load``, or
    ``smallest-tree``, the worker that the fewest new blocks were sent to.

    Source: sgl-project/sglang sgl-model-gateway/src/policies/cache_aware.rs; wheel sglang_router 0.3.2. The
    smallest tree was the rule before PR #14650.
    """

    def __init__(
        self,
        context: RouterContext,
        *,
        cache_threshold: float = 0.3,
        abs_threshold: float = 64.0,
        rel_threshold: float = 1.5,
        fallback: str = "least-load",
        ties: str = "random",
    ) -> None:
        super().__init__(context, ties=ties)
        self.cache_threshold = cache_threshold
        self.abs_threshold = abs_threshold
        self.rel_threshold = rel_threshold
        self.fallback = fallback
        self.trees = np.zeros(context.workers, dtype=np.int64)

    def choose(self, request: RouteRequest) -> int:
        worker = self.pick(request)
        self.trees[worker] += request.blocks - self.overlap[worker]
        return worker

    def pick(self, request: RouteRequest) -> int:
        """Who serves the request."""
        load = self.known.requests
        if is_imbalanced(load, self.abs_threshold, self.rel_threshold):
            return self.ties.lowest(load)
        if request.blocks and request.best / request.blocks > self.cache_threshold:
            return self.ties.highest(self.overlap)
        return self.ties.lowest(self.trees if self.fallback == "smallest-tree" else load)


class RayPrefixAware(CacheAware):
    """The best match if it is a good one, else the smallest tree; two random workers where load is uneven.

    ``imbalance``     a larger difference of requests in flight counts as uneven; 0: none ever does.
    ``cache_threshold``  matches below this share of the prompt go to the worker with the smallest tree.
    Of equal matches the one with the fewest requests in flight.

    Source: ray-project/ray python/ray/llm/_internal/serve/routing_policies/prefix_aware/prefix_aware_router.py.
    """

    def __init__(self, context: RouterContext, *, imbalance: float = 0.0, cache_threshold: float = 0.1) -> None:
        super().__init__(context, cache_threshold=cache_threshold, ties="least-requests")
        self.imbalance = imbalance

    def pick(self, request: RouteRequest) -> int:
        load = self.known.requests
        if self.imbalance and int(load.max() - load.min()) > self.imbalance:
            return self.ties.lowest(load, two_of(self))
        if request.blocks and request.best / request.blocks >= self.cache_threshold:
            return self.ties.highest(self.overlap)
        return self.ties.lowest(self.trees)
