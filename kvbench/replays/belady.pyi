from typing import Self, final

import numpy as np
import numpy.typing as npt

NEVER: int

@final
class NextUses:
    @property
    def accesses(self) -> int: ...
    @property
    def requests(self) -> int: ...
    def note(
        self,
        ids: npt.NDArray[np.uint64],
        offsets: npt.NDArray[np.int64],
        cacheable: npt.NDArray[np.int32],
        next_use: npt.NDArray[np.int32],
    ) -> None: ...

@final
class BeladyBound:
    def __new__(cls, capacity: int, requests: int) -> Self: ...
    @property
    def capacity(self) -> int: ...
    @property
    def used(self) -> int: ...
    def run(
        self,
        ids: npt.NDArray[np.uint64],
        offsets: npt.NDArray[np.int64],
        cacheable: npt.NDArray[np.int32],
        next_use: npt.NDArray[np.int32],
        hit_blocks: npt.NDArray[np.int32],
    ) -> None: ...
