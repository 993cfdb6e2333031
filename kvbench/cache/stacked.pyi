from typing import Self

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from kvbench.cache.admission import AdmissionFilter
from kvbench.cache.events import EventLog
from kvbench.cache.flights import FlightStore
from kvbench.cache.seen import Seen
from kvbench.eviction.policy import EvictionPolicy

TIER_COUNTS: tuple[str, ...]
WRITE_MODES: dict[str, int]
PROMOTIONS: dict[str, int]
TOUCHES: dict[str, int]
PARTIALS: dict[str, int]

@disjoint_base
class StackedTier(FlightStore):
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
        multiple: int = 1,
        write: str = "through",
        promotion: str = "copy",
        touch_on: str = "request",
        spares: bool = True,
        whole: bool = False,
        partial: str = "free",
        high: int = 0,
        low: int = 0,
        ratio: float = 0.0,
        period_ns: int = 0,
        admission: AdmissionFilter | None = None,
        seen: Seen | None = None,
    ) -> Self: ...
    @property
    def multiple(self) -> int: ...
    @property
    def write(self) -> int: ...
    @property
    def promotion(self) -> int: ...
    @property
    def touch_on(self) -> int: ...
    @property
    def spares(self) -> bool: ...
    @property
    def partial(self) -> int: ...
    @property
    def whole(self) -> bool: ...
    @property
    def high(self) -> int: ...
    @property
    def low(self) -> int: ...
    def link_below(self, below: StackedTier) -> None: ...
    def set_faults(self, *, unhealthy: bool = False, get_fails: float = 0.0, put_fails: float = 0.0) -> None: ...
    def clear_store(self, request: int, worker: int) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def ages_log2(self) -> list[int]: ...
    def read_blocks(
        self, keys: npt.NDArray[np.uint64], parents: npt.NDArray[np.uint64], depths: npt.NDArray[np.int32]
    ) -> None: ...
