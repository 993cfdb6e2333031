from typing import Self, final

from kvbench.routing.feed import EventFeed
from kvbench.units import Lag

@final
class EventChannel:
    def __new__(
        cls,
        feed: EventFeed,
        *,
        coalesce: Lag = ...,
        delay: Lag = ...,
        cycle: Lag = ...,
        batch: int = 0,
        loss: float = 0,
        duplication: float = 0,
        reorder: float = 0,
        seed: int = 0,
    ) -> Self: ...
    @property
    def feed(self) -> EventFeed: ...
    @property
    def messages(self) -> int: ...
    @property
    def lost_messages(self) -> int: ...
    @property
    def lost_events(self) -> int: ...
    @property
    def duplicated_messages(self) -> int: ...
    @property
    def reordered_messages(self) -> int: ...
    @property
    def cycles(self) -> int: ...
    @property
    def under_way(self) -> int: ...
    def flush(self) -> None: ...
