from typing import Self

from kvbench.routing.channel import EventChannel
from kvbench.routing.index import KvbmIndex
from kvbench.routing.policy import RouterPolicy
from kvbench.routing.predictor import Predictor

class RouterView:
    def __new__(
        cls,
        router: RouterPolicy,
        index: KvbmIndex,
        *,
        channel: EventChannel | None = None,
        predictor: Predictor | None = None,
        hears: bool = False,
    ) -> Self: ...
    @property
    def router(self) -> RouterPolicy: ...
    @property
    def index(self) -> KvbmIndex: ...
    @property
    def channel(self) -> EventChannel | None: ...
