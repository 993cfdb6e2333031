from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from kvbench.replays.tiered import TieredReplay
from kvbench.serving.mover import Observer
from kvbench.serving.traffic import Traffic
from kvbench.serving.worker import Worker

COUNTS: tuple[str, ...]
TIMES: tuple[str, ...]

@disjoint_base
class Slab: ...

@disjoint_base
class Recorder(Observer): ...

@disjoint_base
class TimedReplay(TieredReplay):
    @property
    def traffic(self) -> Traffic: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def arrived(self) -> int: ...
    @property
    def ended(self) -> int: ...
    @property
    def stopped(self) -> str: ...
    @property
    def done_batches(self) -> int: ...
    @property
    def now_ns(self) -> int: ...
    @property
    def recorder(self) -> Recorder: ...
    def employ(
        self,
        traffic: Traffic,
        workers: list[Worker],
        *,
        concurrency: int = 0,
        stop_ns: int | None = None,
        stall_steps: int = 1_000_000,
        sample_ns: int = 0,
        sampler: Callable[[int], None] | None = None,
    ) -> None: ...
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
    def call_at(self, times_ns: Iterable[int], callback: Callable[[int], None]) -> None: ...
    def observe_links(self) -> None: ...
    def go_on(self, *, final: bool = False) -> bool: ...
    def stop(self, why: str) -> None: ...
