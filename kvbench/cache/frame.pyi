from typing import Self

from typing_extensions import disjoint_base

from kvbench.cache.stacked import StackedTier

@disjoint_base
class StackFrame:
    def __new__(
        cls,
        tiers: list[list[StackedTier]],
        *,
        worker: int = 0,
        walk: str = "any",
        spill: bool = False,
        retries: int = 0,
        fault_seed: int = 0,
    ) -> Self: ...
    @property
    def worker(self) -> int: ...
    @property
    def levels(self) -> int: ...
    @property
    def frozen(self) -> bool: ...
    @property
    def timed(self) -> bool: ...
    def keep_time(self) -> None: ...
    @property
    def overlap(self) -> int: ...
    @property
    def lost(self) -> int: ...
