from typing import Any, Self

from kvbench.routing.index import KvbmIndex
from kvbench.routing.view import RouterView

DEFAULT_WINDOW: int

class Dispatcher:
    def __new__(cls, truth: KvbmIndex, views: list[RouterView], **load: Any) -> Self: ...
    @property
    def truth(self) -> KvbmIndex: ...
    @property
    def views(self) -> list[RouterView]: ...
    @property
    def workers(self) -> int: ...
