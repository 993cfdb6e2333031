"""Routers that hash the start of a prompt, or its session, to a place on a ring of workers.

The same start comes to the same worker without anybody knowing what a cache holds. Bounded loads keep a hot
start from one worker alone. Cost: O(log(workers · replicas)) a request, and O(workers) where loads are bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.routers.base import Router

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.routing import RouterContext, RouteRequest

MASK = 2**64 - 1


def mixed(value: int) -> int:
    """Spreads 64-bit numbers evenly (the finalizer of SplitMix64)."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
    return value ^ value >> 31


class Ring:
    """``replicas`` places for each of so many workers."""

    def __init__(self, workers: int, replicas: int) -> None:
        places = [(mixed(mixed(worker) ^ replica), worker) for worker in range(workers) for replica in range(replicas)]
        places.sort()
        self._places = np.array([place for place, _ in places], dtype=np.uint64)
        self._workers = np.array([worker for _, worker in places], dtype=np.intp)

    def walk(self, value: int) -> npt.NDArray[np.intp]:
        """The workers, each once, in the order in which they follow the place of ``value``."""
        at = int(np.searchsorted(self._places, np.uint64(mixed(value))))
        around = np.roll(self._workers, -at)
        _, first = np.unique(around, return_index=True)
        return around[np.sort(first)]

    def owner(self, value: int) -> int:
        """The first of them."""
        at = int(np.searchsorted(self._places, np.uint64(mixed(value))))
        return int(self._workers[at % len(self._workers)])


def start_key(request: RouteRequest, tokens: int, block_tokens: int | None) -> int | None:
    """What stands for the first ``tokens`` of a prompt: the key of the last block that lies in them, of the
    first one at least. None for a prompt without blocks."""
    if not request.blocks:
        return None
    whole = tokens // block_tokens if block_tokens else 1
    return request.key(min(max(whole, 1), request.blocks) - 1)


class BoundedHash(Router):
    """The first worker on the ring whose load stays within ``load_factor`` times the mean.

    A worker is taken if requests in flight there, and this one, are at most ``load_factor`` · (all in
    flight + 1) / workers. What is hashed (``by``) is the ``prefix``, the first ``prefix_tokens`` in whole
    blocks, or the ``session``. Prompts without either go to the least loaded worker.

    Source: Mirrokni et al., "Consistent hashing with bounded loads", SODA 2018; KubeAI balance_chwbl.go
    (125 %, 256 replicas, the first 100 characters).
    """

    def __init__(
        self,
        context: RouterContext,
        *,
        by: str = "prefix",
        prefix_tokens: int = 256,
        load_factor: float = 1.25,
        replicas: int = 256,
    ) -> None:
        super().__init__(context)
        self.by = by
        self.prefix_tokens = prefix_tokens
        self.load_factor = load_factor
        self.ring = Ring(context.workers, replicas)

    def choose(self, request: RouteRequest) -> int:
        value = self.hashed(request)
        if value is None:
            return self.ties.lowest(self.known.requests)
        return self.place(value)

    def hashed(self, request: RouteRequest) -> int | None:
        """What is hashed of a request; None for nothing."""
        if self.by == "session":
            return request.session if request.session >= 0 else None
        return start_key(request, self.prefix_tokens, self.context.block_tokens)

    def place(self, value: int) -> int:
        """The worker for a request that is hashed by ``value``."""
        load, limit = self.known.requests, self.limit()
        owner = self.ring.owner(value)
        if load[owner] + 1 <= limit or not load.any():
            return owner
        walk = self.ring.walk(value)
        accepted = walk[load[walk] + 1 <= limit]
        return int(accepted[0]) if len(accepted) else owner

    def limit(self) -> float:
        """The load that a worker may have."""
        return self.load_factor * (int(self.known.requests.sum()) + 1) / self.workers


class SglangPrefixHash(BoundedHash):
    """The owner of the prompt's start on the ring if its load is within bounds, else the least loaded worker
    that is, else the owner.

    Source: SGLang prefix_hash.rs (256 tokens, load factor 1.25); the load of the owner is without the request.
    """

    def place(self, value: int) -> int:
        owner, load = self.ring.owner(value), self.known.requests
        within = load <= self.limit()
        if within[owner]:
            return owner
        accepted = np.flatnonzero(within)
        return self.ties.lowest(load, accepted) if len(accepted) else owner


class SessionSticky(Router):
    """A session stays with the worker that had its first request, the least loaded one then.

    ``ttl_s``  forget a session that was silent for so long; 0: never.

    Source: session affinity of Dynamo (off by default) and of AIBrix.
    """

    def __init__(self, context: RouterContext, *, ttl_s: float = 0.0, ties: str = "random") -> None:
        super().__init__(context, ties=ties)
        self.ttl_ns = round(ttl_s * 1e9)
        self._bound: dict[int, tuple[int, int]] = {}

    def choose(self, request: RouteRequest) -> int:
        worker = self._bound_to(request)
        if worker is None:
            worker = self.ties.lowest(self.known.requests)
        if request.session >= 0:
            self._bound[request.session] = (worker, request.time_ns)
        return worker

    def _bound_to(self, request: RouteRequest) -> int | None:
        worker, seen_ns = self._bound.pop(request.session, (None, 0))
        # The longest silent ones stand in front.
        while self.ttl_ns and self._bound:
            session = next(iter(self._bound))
            if request.time_ns - self._bound[session][1] <= self.ttl_ns:
                break
            del self._bound[session]
        return None if self.ttl_ns and request.time_ns - seen_ns > self.ttl_ns else worker


class SessionRing(Router):
    """The owner of a session on a ring; requests without one go where the fewest are in flight.

    Source: vLLM production-stack, session routing.
    """

    def __init__(self, context: RouterContext, *, replicas: int = 100) -> None:
        super().__init__(context)
        self.ring = Ring(context.workers, replicas)

    def choose(self, request: RouteRequest) -> int:
        if request.session < 0:
            return self.ties.lowest(self.known.requests)
        return self.ring.owner(request.session)
