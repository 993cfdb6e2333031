from collections.abc import Sequence
from typing import Any, Self, final

from kvbench.routing.load import LoadView
from kvbench.units import Lag

class LoadLedger:
    def __new__(cls, views: Sequence[LoadView], *, sync: Lag, period: Lag, **settings: Any) -> Self: ...

@final
class WindowLedger(LoadLedger):
    def __new__(
        cls,
        views: Sequence[LoadView],
        *,
        sync: Lag,
        period: Lag,
        window: Lag,
        prefill_share: float = 0.25,
    ) -> Self: ...
