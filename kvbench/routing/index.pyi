from collections.abc import Sequence
from typing import Self, final

import numpy as np
import numpy.typing as npt

from kvbench.routing.holders import Holders

@final
class KvbmIndex(Holders):
    def __new__(
        cls,
        workers: int,
        dense: bool = False,
        groups: Sequence[tuple[int, int]] = ((1, 1),),
        counts_copies: bool = False,
        predicts: bool = False,
    ) -> Self: ...
    @property
    def parked(self) -> int: ...
    def overlaps(self, keys: npt.NDArray[np.uint64]) -> list[int]: ...
    def tier_overlaps(self, keys: npt.NDArray[np.uint64]) -> list[list[int]]: ...
    def holders_of(self, key: int) -> list[int]: ...
    def beyond(self, other: KvbmIndex) -> int: ...
