from typing import Self, TypedDict, type_check_only

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from kvbench.cache.events import EventLog
from kvbench.cache.victims import VictimStore
from kvbench.eviction.policy import EvictionPolicy

ORDERS: dict[str, int]

@type_check_only
class LastCounts(TypedDict):
    resident: int
    stored: int
    evicted: int
    truncated: int

@disjoint_base
class Tier(VictimStore):
    def __new__(
        cls,
        policy: EvictionPolicy | None = None,
        *,
        order: str = "tail-first",
        dense: bool = False,
        log: EventLog | None = None,
        worker: int = 0,
        store: int = -1,
        level: int = 0,
        name: str = "gpu",
    ) -> Self: ...
    @property
    def last(self) -> LastCounts: ...
    def serve(self, keys: npt.NDArray[np.uint64]) -> int: ...
