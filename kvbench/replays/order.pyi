from typing import Any, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from kvbench.cache.events import EventLog
from kvbench.cache.seen import Seen
from kvbench.routing.dispatcher import Dispatcher

COUNTS: tuple[str, ...]
FACTS: tuple[str, ...]

@disjoint_base
class OrderReplay:
    def __new__(
        cls,
        places: list[Any],
        *,
        dispatcher: Dispatcher | None = None,
        log: EventLog | None = None,
        seen: Seen | None = None,
        keep_events: bool = False,
    ) -> Self: ...
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @property
    def request(self) -> int: ...
    @property
    def distinct(self) -> int | None: ...
    def run(
        self,
        keys: npt.NDArray[np.uint64],
        offsets: npt.NDArray[np.int64],
        cacheable: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int32],
        *,
        time_ns: npt.NDArray[np.int64] | None = None,
        facts: npt.NDArray[np.int32] | None = None,
        next_use: npt.NDArray[np.int32] | None = None,
        outputs: npt.NDArray[np.int32] | None = None,
        limits: npt.NDArray[np.int32] | None = None,
        partials: npt.NDArray[np.uint8] | None = None,
    ) -> None: ...
