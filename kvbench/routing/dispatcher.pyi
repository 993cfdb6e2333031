from typing import Self

from kvbench.routing.index import KvbmIndex
from kvbench.routing.view import RouterView
from kvbench.units import Lag

DEFAULT_WINDOW: int

class Dispatcher:
    def __new__(
        cls,
        truth: KvbmIndex,
        views: list[RouterView],
        *,
        timed: bool = False,
        window: Lag | None = None,
        prefill_share: float = 0.25,
        sync: Lag = ...,
        period: Lag = ...,
    ) -> Self: ...
    @property
    def truth(self) -> KvbmIndex: ...
    @property
    def views(self) -> list[RouterView]: ...
    @property
    def workers(self) -> int: ...
