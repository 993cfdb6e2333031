from collections.abc import Sequence
from typing import Self

from kvbench.serving.compute import ComputeContext, MixedModel

class Grid:
    def __new__(
        cls,
        name: str,
        axes: Sequence[tuple[str, Sequence[float]]],
        times_ns: Sequence[float],
        extrapolate: bool,
    ) -> Self: ...
    @property
    def is_plane(self) -> bool: ...

class Timetable(MixedModel):
    def __init__(
        self,
        context: ComputeContext,
        prefill: Grid | None,
        decode: Grid | None,
        *,
        by_context: bool,
        mix: str,
    ) -> None: ...
