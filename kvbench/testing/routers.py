"""The contract of router policies: a valid worker for every request, the same one for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache import EventLog, Tier
from kvbench.eviction import PolicyContext
from kvbench.eviction.lru import Lru
from kvbench.replays.order import COUNTS, OrderReplay
from kvbench.routing import Dispatcher, KvbmIndex, RouterContext, RouterPolicy, RouterView
from kvbench.specs import RouterPolicySpec, Spec
from kvbench.testing.parts import CONTRACT, PartContract
from kvbench.testing.strategies import requests

if TYPE_CHECKING:
    from kvbench.testing.strategies import Keys

SEED = 20_240_229
CAPACITY = 8
WORKERS = (1, 2, 65)
"""One, few, and more than one word of the index's bit sets holds."""


class RouterPolicyContract(PartContract):
    """Inherit, and set ``spec_name``; or override ``make``."""

    kind: ClassVar[type[Spec]] = RouterPolicySpec

    def make(self, context: RouterContext) -> RouterPolicy:
        """A fresh router."""
        router = self.build(context)
        assert isinstance(router, RouterPolicy), f"the factory made a {type(router).__name__}"
        return router

    def fresh(self, workers: int, seed: int = SEED) -> RouterPolicy:
        """A fresh router for so many workers."""
        return self.make(RouterContext(workers, seed))

    @pytest.mark.parametrize("workers", WORKERS)
    def test_names_a_worker_that_is_there(self, workers: int) -> None:
        @CONTRACT
        @given(asked=requests())
        def check(asked: list[Keys]) -> None:
            chosen = Cluster(self.fresh(workers), workers).route(asked)
            assert all(0 <= worker < workers for worker in chosen)

        check()

    @pytest.mark.parametrize("workers", WORKERS)
    def test_same_seed_gives_same_workers(self, workers: int) -> None:
        @CONTRACT
        @given(asked=requests(), seed=st.integers(0, 2**64 - 1))
        def check(asked: list[Keys], seed: int) -> None:
            first = Cluster(self.fresh(workers, seed), workers).route(asked)
            assert Cluster(self.fresh(workers, seed), workers).route(asked) == first

        check()

    @CONTRACT
    @given(asked=requests(), other=requests())
    def test_two_instances_share_nothing(self, asked: list[Keys], other: list[Keys]) -> None:
        """A router does the same alone as beside another one that routes other requests."""
        alone = Cluster(self.fresh(3), 3).route(asked)
        cluster, neighbour = Cluster(self.fresh(3), 3), Cluster(self.fresh(3), 3)
        beside: list[int] = []
        for at, keys in enumerate(asked):
            neighbour.route(other[at : at + 1])
            beside += cluster.route([keys])
        assert beside == alone

    def test_request_without_cacheable_blocks(self) -> None:
        """A prompt shorter than a block has a worker, too."""
        chosen = Cluster(self.fresh(2), 2).route([np.zeros(0, dtype=np.uint64)] * 5)
        assert all(worker in (0, 1) for worker in chosen)


class Cluster:
    """Workers with small LRU caches behind a router, as the order replay drives them."""

    def __init__(self, router: RouterPolicy, workers: int) -> None:
        log = EventLog()
        tiers = [Tier(Lru(PolicyContext(CAPACITY)), log=log, worker=worker) for worker in range(workers)]
        truth = KvbmIndex(workers)
        dispatcher = Dispatcher(truth, [RouterView(router, truth)])
        self._replay = OrderReplay(tiers, dispatcher=dispatcher, log=log)

    def route(self, asked: list[Keys]) -> list[int]:
        """Serve the requests; returns the worker of each."""
        sizes = np.array([len(keys) for keys in asked], dtype=np.int32)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.zeros((len(asked), len(COUNTS)), dtype=np.int32)
        keys = np.concatenate([*asked, np.zeros(0, dtype=np.uint64)])
        self._replay.run(keys, offsets, sizes, rows)
        return [int(worker) for worker in rows[:, COUNTS.index("worker")]]
