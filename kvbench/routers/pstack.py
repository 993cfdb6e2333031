"""The routers of the vLLM production stack. Cost: O(workers) a request.

Source: vllm-project/production-stack src/vllm_router/routers/routing_logic.py, 2026-08.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.routers.base import Router
from kvbench.routers.rings import Ring
from kvbench.routers.terms import relative, share

if TYPE_CHECKING:
    from kvbench.routers.base import Scores
    from kvbench.routing import RouterContext, RouteRequest


class KvAware(Router):
    """The first worker with the longest match, if all but ``threshold`` tokens of the prompt match there;
    else by the ring of sessions, or where the fewest requests are in flight.

    A prompt of ``threshold`` tokens or fewer is content with any match, however short.
    """

    def __init__(self, context: RouterContext, *, threshold: int = 2_000, replicas: int = 100) -> None:
        super().__init__(context)
        self.threshold = threshold
        self.ring = Ring(context.workers, replicas)

    def choose(self, request: RouteRequest) -> int:
        matched = request.best * (self.context.block_tokens or 1)
        if request.best and matched >= max(request.tokens - self.threshold, 0):
            return int(self.overlap.argmax())
        if request.session >= 0:
            return self.ring.owner(request.session)
        return self.ties.lowest(self.known.requests)


class PrefixAware(Router):
    """An even draw among the workers with the longest match.

    The original keeps what it sent in a trie that never forgets: run it with an approximate index without
    bound to have that.
    """

    def score(self, request: RouteRequest) -> Scores:
        return self.overlap.astype(np.float64)


class LoadAware(Router):
    """Match over the prompt less ``beta`` times how far the worker's load is above the mean, in means.

    ``signal``  the load: a name of :data:`kvbench.builtin_routers.SIGNALS`.

    Source: PR #1035.
    """

    def __init__(
        self, context: RouterContext, *, beta: float = 1.0, signal: str = "requests", ties: str = "random"
    ) -> None:
        super().__init__(context, ties=ties)
        self.beta = beta
        self.signal = signal

    def score(self, request: RouteRequest) -> Scores:
        return share(self.overlap, request.blocks) - self.beta * relative(self.known.signal(self.signal))
