"""Routers that look at load alone. Cost: O(workers) a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.routers.base import Router

if TYPE_CHECKING:
    from kvbench.routers.base import Scores
    from kvbench.routing import RouterContext, RouteRequest


class LeastLoaded(Router):
    """The worker with the least of one figure of load.

    ``signal``  which: a name of :data:`kvbench.builtin_routers.SIGNALS`.

    Source: folklore; least-request, least-gpu-cache and their like of AIBrix are this with another signal.
    """

    def __init__(self, context: RouterContext, *, signal: str = "requests", ties: str = "random") -> None:
        super().__init__(context, ties=ties)
        self.signal = signal

    def score(self, request: RouteRequest) -> Scores:
        return -self.known.signal(self.signal).astype(np.float64)


class PowerOfTwo(Router):
    """Of two workers drawn at random the less loaded one.

    Source: Mitzenmacher, "The power of two choices in randomized load balancing", TPDS 2001; AIBrix power-of-two.
    """

    def __init__(self, context: RouterContext, *, signal: str = "requests") -> None:
        super().__init__(context)
        self.signal = signal

    def choose(self, request: RouteRequest) -> int:
        return self.ties.lowest(self.known.signal(self.signal), two_of(self))


def two_of(router: Router) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Two different workers drawn at random (or the only one), in rising order."""
    if router.workers == 1:
        return np.zeros(1, dtype=np.intp)
    one = router.random.below(router.workers)
    other = router.random.below(router.workers - 1)
    other += other >= one
    return np.array(sorted((one, other)), dtype=np.intp)


class Throughput(Router):
    """The worker with the fewest tokens a request: twice the mean prompt of its requests in flight.

    The original adds the mean of the tokens generated, which no router of an order replay hears of.

    Source: AIBrix throughput.go.
    """

    def score(self, request: RouteRequest) -> Scores:
        return -2.0 * self.known.tokens / np.maximum(self.known.requests, 1)


class VllmDataParallel(Router):
    """Four times the requests that wait plus those that run, as the engines reported them last; what was
    sent out since then counts as waiting.

    ``waiting_weight``  the four.

    Source: vLLM's data-parallel balancer (core_client.py), reports every 100 ms.
    """

    def __init__(self, context: RouterContext, *, waiting_weight: float = 4.0, ties: str = "random") -> None:
        super().__init__(context, ties=ties)
        self.waiting_weight = waiting_weight
        self._sent = np.zeros(context.workers)
        self._last = -1

    def choose(self, request: RouteRequest) -> int:
        if request.number - self.known.age_requests > self._last:
            self._sent[:] = 0  # they have reported since the last one was sent out
        self._last = request.number
        load = self.waiting_weight * (self.known.waiting + self._sent) + self.known.running
        worker = self.ties.lowest(load)
        self._sent[worker] += 1
        return worker


class AlwaysBusiest(Router):
    """The worker with the most requests in flight: the worst there is, to compare with.

    Source: BLIS, which has it as a test.
    """

    def score(self, request: RouteRequest) -> Scores:
        return self.known.requests.astype(np.float64)
