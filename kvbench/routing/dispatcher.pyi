from typing import Any, Self

from kvbench.routing.index import KvbmIndex
from kvbench.routing.policy import RouterPolicy

DEFAULT_WINDOW: int

class Dispatcher:
    def __new__(cls, truth: KvbmIndex, routers: list[RouterPolicy], **load: Any) -> Self: ...
    @property
    def truth(self) -> KvbmIndex: ...
    @property
    def routers(self) -> list[RouterPolicy]: ...
    @property
    def workers(self) -> int: ...
