from typing import final

import numpy as np
import numpy.typing as npt

from kvbench.cache.plan import StackPlan

@final
class TierStack(StackPlan):
    def serve(
        self,
        keys: npt.NDArray[np.uint64],
        *,
        request: int = 0,
        time_ns: int = 0,
        limit: int | None = None,
        partial: bool = False,
    ) -> int: ...
    def store_only(
        self, keys: npt.NDArray[np.uint64], *, skip: int = 0, request: int = 0, time_ns: int = 0
    ) -> list[int]: ...
    def fetch_only(
        self,
        keys: npt.NDArray[np.uint64],
        *,
        skip: int = 0,
        limit: int | None = None,
        request: int = 0,
        time_ns: int = 0,
    ) -> int: ...
