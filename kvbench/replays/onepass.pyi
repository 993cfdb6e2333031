from typing import Any, Self, final

import numpy.typing as npt

from kvbench.replays.distances import Sums
from kvbench.replays.stack import Stack

@final
class OnePass:
    def __new__(
        cls,
        sums: Sums,
        *,
        block_tokens: int,
        dense: bool,
        ruler: float = 0,
        salt: int = 0,
        trunk: int = 0,
        shared: bool = False,
    ) -> Self: ...
    @property
    def stack(self) -> Stack: ...
    @property
    def distinct(self) -> int: ...
    @property
    def reuse_times(self) -> list[int]: ...
    def run(
        self,
        keys: npt.NDArray[Any],
        offsets: npt.NDArray[Any],
        cacheable: npt.NDArray[Any],
        input_tokens: npt.NDArray[Any],
        arrival_ns: npt.NDArray[Any],
        groups: npt.NDArray[Any] | None = None,
    ) -> None: ...
