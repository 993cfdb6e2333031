"""near-idle: of the workers with nearly the least load, the one that holds the longest prefix.

A hot prefix cannot draw all requests to one worker, and a request moves away from its prefix only where
that worker is really busier. Cost: O(workers) a request.
"""

import numpy as np

import kvbench
from kvbench.routers import Router


class NearIdle(Router):
    """``slack``: how many requests in flight above the least loaded worker still count as idle."""

    def __init__(self, context, slack=2):
        super().__init__(context, ties="least-requests")
        self.slack = slack

    def choose(self, request):
        load = self.known.requests
        idle = np.flatnonzero(load <= load.min() + self.slack)
        return self.ties.highest(self.overlap, idle)


@kvbench.hookimpl
def kvbench_router_policies():
    slack = kvbench.Param("slack", int, 2, "requests above the least that count as idle", minimum=0)
    yield kvbench.RouterPolicySpec(
        "near-idle", NearIdle, "the longest prefix among the nearly idle workers", params=(slack,), source="example"
    )
