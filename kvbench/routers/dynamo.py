"""The KV router of NVIDIA Dynamo. Everything is counted in blocks. Cost: O(workers · tiers) a request.

Source: ai-dynamo/dynamo lib/kv-router/src/scheduling/selector/default.rs, 1.4; docs/components/router.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kvbench.routers.base import Router
from kvbench.routers.terms import tier_weights, weighted

if TYPE_CHECKING:
    from kvbench.routers.base import Scores
    from kvbench.routing import RouterContext, RouteRequest


class DynamoKv(Router):
    """The worker with the lowest cost:

        credit  = overlap_credit' · device + host_weight · host + disk_weight · disk
        prefill = max(prefill blocks queued or running + blocks of the prompt - credit, 0)
        decode  = blocks of active requests + blocks of the prompt
        cost    = prefill_scale · prefill + decode + request_weight · active requests

    where device, host and disk are the blocks of the overlap in the fastest tier, the one below and all
    others, and overlap_credit' = overlap_credit / (1 + decay · excess / blocks of the prompt) with the
    worker's excess of prefill blocks over the least. Without ``track_prefill`` (a pool that decodes)
    cost = max(decode - credit, 0) + request_weight · active requests.

    Dynamo counts blocks that active requests share once; here each request counts its own. There is no
    shared cache beyond the workers, as by Dynamo's default.

    ``temperature`` 0 takes a lowest cost, equal ones by an even draw; T > 0 draws worker w with a
    probability in proportion to exp(-(cost - min) / ((max - min) · T)).
    """

    wants = ("tiers",)

    def __init__(
        self,
        context: RouterContext,
        *,
        overlap_credit: float = 1.0,
        decay: float = 0.0,
        host_weight: float = 0.75,
        disk_weight: float = 0.25,
        prefill_scale: float = 1.0,
        request_weight: float = 0.0,
        temperature: float = 0.0,
        track_prefill: bool = True,
    ) -> None:
        super().__init__(context)
        self.overlap_credit = overlap_credit
        self.decay = decay
        self.below = tier_weights(self.tiers, first=0.0, second=host_weight, rest=disk_weight)
        self.prefill_scale = prefill_scale
        self.request_weight = request_weight
        self.temperature = temperature
        self.track_prefill = track_prefill

    def choose(self, request: RouteRequest) -> int:
        return draw(self, self.cost(request.blocks), self.temperature)

    def cost(self, blocks: int) -> Scores:
        """Of each worker, for a prompt of so many blocks; lower is better."""
        active = self.request_weight * self.known.requests
        if not self.track_prefill:
            load: Scores = np.maximum(self.decode(blocks) - self.credit(blocks), 0)
        else:
            load = self.prefill_scale * self.prefill(blocks) + self.decode(blocks)
        return load + active

    def credit(self, blocks: int) -> Scores:
        """What the overlap is worth, in blocks."""
        device = np.full(self.workers, self.overlap_credit)
        if self.decay and self.track_prefill and blocks:
            queued = self.known.prefill_blocks
            device /= 1 + self.decay * (queued - queued.min()) / blocks
        worth: Scores = device * self.tier_overlap[0] + weighted(self.tier_overlap, self.below)
        return worth

    def prefill(self, blocks: int) -> Scores:
        """Blocks to be computed at each worker, this prompt's included."""
        left: Scores = np.maximum(self.known.prefill_blocks + blocks - self.credit(blocks), 0)
        return left

    def decode(self, blocks: int) -> Scores:
        """Blocks held by active requests, this one included."""
        return (self.known.blocks + blocks).astype(np.float64)


class DynamoLmetric(DynamoKv):
    """The worker with the lowest prefill · (decode + 1), terms as in :class:`DynamoKv`."""

    def cost(self, blocks: int) -> Scores:
        return self.prefill(blocks) * (self.decode(blocks) + 1)


class DynamoLogit(DynamoKv):
    """The form that papers quote: overlap_weight · prefill blocks of the prompt + decode blocks.

    Source: Dynamo 0.x.
    """

    def __init__(self, context: RouterContext, *, overlap_weight: float = 1.0, temperature: float = 0.0) -> None:
        super().__init__(context, host_weight=1.0, disk_weight=1.0, temperature=temperature)
        self.overlap_weight = overlap_weight

    def cost(self, blocks: int) -> Scores:
        return self.overlap_weight * (blocks - self.credit(blocks)) + self.decode(blocks)


def draw(router: Router, cost: Scores, temperature: float) -> int:
    """A worker by its cost (see :class:`DynamoKv`)."""
    least = float(cost.min())
    spread = float(cost.max()) - least
    if temperature == 0 or spread == 0:
        return router.ties.lowest(cost)
    weights = [math.exp(-(float(each) - least) / (spread * temperature)) for each in cost]
    left = router.random.uniform() * math.fsum(weights)
    for worker, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return worker
    return int(cost.argmin())
