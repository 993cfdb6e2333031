import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from kvbench.replays.tiered import TieredReplay

COUNTS: tuple[str, ...]
TIMES: tuple[str, ...]

@disjoint_base
class Slab: ...

@disjoint_base
class TimedFrame(TieredReplay):
    @property
    def done_batches(self) -> int: ...
    def push(
        self,
        keys: npt.NDArray[np.uint64],
        offsets: npt.NDArray[np.int64],
        cacheable: npt.NDArray[np.int32],
        arrival_ns: npt.NDArray[np.int64],
        input_tokens: npt.NDArray[np.int64],
        output_tokens: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int32],
        tier_rows: npt.NDArray[np.int32],
        times: npt.NDArray[np.int64],
        *,
        outputs: npt.NDArray[np.int32] | None = None,
        limits: npt.NDArray[np.int32] | None = None,
        facts: npt.NDArray[np.int32] | None = None,
        sessions: npt.NDArray[np.int32] | None = None,
        wait_ns: npt.NDArray[np.int64] | None = None,
    ) -> None: ...
    def take_event_times(self) -> list[tuple[int, int]]: ...
