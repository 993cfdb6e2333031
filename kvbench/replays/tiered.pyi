from typing import Any, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import disjoint_base

from kvbench.cache.events import EventLog
from kvbench.cache.seen import Seen
from kvbench.cache.stack import TierStack
from kvbench.replays.order import OrderReplay
from kvbench.routing.dispatcher import Dispatcher

def tier_columns(levels: int) -> list[str]: ...

@disjoint_base
class TieredReplay(OrderReplay):
    def __new__(
        cls,
        places: list[TierStack],
        *,
        dispatcher: Dispatcher | None = None,
        log: EventLog | None = None,
        seen: Seen | None = None,
        keep_events: bool = False,
    ) -> Self: ...
    def run_tiers(
        self,
        keys: npt.NDArray[np.uint64],
        offsets: npt.NDArray[np.int64],
        cacheable: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int32],
        tier_rows: npt.NDArray[np.int32],
        **columns: Any,
    ) -> None: ...
