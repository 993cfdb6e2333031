"""The routers of AIBrix that look at prefixes or at users. Cost: O(workers) a request.

Source: vllm-project/aibrix pkg/plugins/gateway/algorithms, 2026-08.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ConfigError
from kvbench.routers.base import Router
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from kvbench.routers.base import Scores
    from kvbench.routing import RouterContext, RouteRequest


class AibrixPrefixCache(Router):
    """The best match that is not too busy.

    Where the requests in flight differ by more than ``abs_threshold``, only the workers with the fewest
    stay. Of those that match, the highest percentage first, then the fewest in flight, the first one whose
    load is at most the mean of all workers plus ``deviations`` standard deviations; if there is none, the
    worker with the fewest in flight.

    Source: prefix_cache.go.
    """

    def __init__(self, context: RouterContext, *, abs_threshold: int = 8, deviations: float = 1.0) -> None:
        super().__init__(context)
        self.abs_threshold = abs_threshold
        self.deviations = deviations

    def choose(self, request: RouteRequest) -> int:
        load = self.known.requests
        stay = np.arange(self.workers)
        if int(load.max() - load.min()) > self.abs_threshold:
            stay = np.flatnonzero(load == load.min())
        limit = load.mean() + self.deviations * load.std()
        fit = stay[(self.overlap[stay] > 0) & (load[stay] <= limit)]
        if not len(fit):
            return self.ties.lowest(load)
        percent = 100 * self.overlap[fit].astype(np.int64) // request.blocks
        fit = fit[percent == percent.max()]
        return self.ties.lowest(load, fit)


class AibrixPreble(Router):
    """Long matches to where they match, other prompts to where the cost of a window is lowest.

    A match of more than ``match_threshold`` of the prompt goes to the least loaded worker that has it. Else
    each worker costs, summed over the requests that it was sent in the last ``window_s`` seconds: the share
    that it had to compute · the time to prefill the prompt / 0.9 / the workers that held as much of it, plus
    ``decode_tokens`` · 0.15 s for the request's answer. The original sums over the nodes of its
    tree; here a node is one request's prompt.

    ``slowness``  of the GPU, relative to the A6000 that the times were fitted on (V100: 2.5).

    Source: prefix_cache_preble.go; Srivatsa et al., "Preble", ICLR 2025.
    """

    DECODE_S = 0.15

    def __init__(
        self,
        context: RouterContext,
        *,
        match_threshold: float = 0.5,
        window_s: float = 180.0,
        decode_tokens: int = 45,
        slowness: float = 2.5,
    ) -> None:
        super().__init__(context)
        self.match_threshold = match_threshold
        self.window_ns = round(window_s * NS_PER_S)
        self.decode_tokens = decode_tokens
        self.slowness = slowness
        self.costs = np.zeros(context.workers)
        self._window: deque[tuple[int, int, float]] = deque()

    def choose(self, request: RouteRequest) -> int:
        while self._window and request.time_ns - self._window[0][0] > self.window_ns:
            _, worker, cost = self._window.popleft()
            self.costs[worker] -= cost
        if request.blocks and request.best / request.blocks > self.match_threshold:
            worker = self.ties.lowest(self.known.requests, np.flatnonzero(self.overlap == request.best))
        else:
            # What was added and taken away leaves a rest of rounding, which must break no tie.
            worker = self.ties.lowest(np.round(self.costs, 6))
        self._note(request, worker)
        return worker

    def _note(self, request: RouteRequest, worker: int) -> None:
        missed = 1 - self.overlap[worker] / request.blocks if request.blocks else 1.0
        holders = max(int(np.count_nonzero(self.overlap >= max(int(self.overlap[worker]), 1))), 1)
        seconds = self.slowness * prefill_ms(max(request.tokens, 0)) / 1000
        cost = float(missed) * seconds / 0.9 / holders + self.decode_tokens * self.DECODE_S
        self.costs[worker] += cost
        self._window.append((request.time_ns, worker, cost))


def prefill_ms(tokens: int) -> float:
    """Time to prefill a prompt of Mistral 7B on an A6000, as fitted by Preble."""
    if tokens >= 384:
        linear = 0.10842571 * tokens + 4.209777
    else:
        linear = -118 + 1.25 * tokens - 2.56e-3 * tokens**2 if tokens >= 192 else 22.0
    attention = 0.32 if tokens <= 1_024 else 1.86e-4 * tokens + 0.159
    long = -7.37 + 3.86e-3 * tokens + 2.16e-6 * tokens**2 if tokens >= 4_096 else 0.0
    return linear + attention + long


class AibrixVtc(Router):
    """Users who had many tokens are sent to workers with high numbers, all of them to idle ones.

        score  = fairness · |worker - min(user's tokens / bucket, workers - 1)|
               + utilization · min(running / max_load, 1) + U(0, 0.1), the lowest wins
        bucket = max(``min_tokens``, (least + most tokens of any user) / 2)

    over a window of ``window_s`` seconds. Users are the trace's tenants; the tokens of answers, which count
    double in the original, are not known to a router of an order replay.

    Source: vtc/vtc_basic.go; Sheng et al., "Fairness in serving large language models", OSDI 2024.
    """

    def __init__(
        self,
        context: RouterContext,
        *,
        fairness: float = 1.0,
        utilization: float = 1.0,
        max_load: float = 100.0,
        min_tokens: float = 1_000.0,
        max_tokens: float = 8_000.0,
        window_s: float = 300.0,
    ) -> None:
        super().__init__(context)
        if min_tokens > max_tokens:
            raise ConfigError(f"aibrix-vtc: min_tokens = {min_tokens:g} is above max_tokens = {max_tokens:g}")
        self.fairness = fairness
        self.utilization = utilization
        self.max_load = max_load
        self.bounds = (min_tokens, max_tokens)
        self.window_ns = round(window_s * NS_PER_S)
        self.had: dict[int, int] = {}
        self._window: deque[tuple[int, int, int]] = deque()

    def choose(self, request: RouteRequest) -> int:
        while self._window and request.time_ns - self._window[0][0] > self.window_ns:
            _, user, tokens = self._window.popleft()
            self.had[user] -= tokens
            if not self.had[user]:
                del self.had[user]
        worker = self.ties.highest(self.score(request))
        tokens = max(request.tokens, 0)
        if tokens:
            self.had[request.tenant] = self.had.get(request.tenant, 0) + tokens
            self._window.append((request.time_ns, request.tenant, tokens))
        return worker

    def score(self, request: RouteRequest) -> Scores:
        least, most = (min(self.had.values()), max(self.had.values())) if self.had else self.bounds
        bucket = max(self.bounds[0], (least + most) / 2)
        wanted = min(self.had.get(request.tenant, 0) / bucket, self.workers - 1)
        fair = np.abs(np.arange(self.workers) - wanted)
        busy = np.minimum(self.known.requests / self.max_load, 1)
        noise = np.array([0.1 * self.random.uniform() for _ in range(self.workers)])
        score: Scores = -(self.fairness * fair + self.utilization * busy + noise)
        return score
