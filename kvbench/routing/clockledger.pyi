from collections.abc import Sequence
from typing import Self, final

from kvbench.routing.ledger import LoadLedger
from kvbench.routing.load import LoadView
from kvbench.units import Lag

@final
class ClockLedger(LoadLedger):
    def __new__(cls, views: Sequence[LoadView], *, sync: Lag, period: Lag) -> Self: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def kept(self) -> int: ...
    def look(self, view: LoadView, request: int, time_ns: int) -> None: ...
    def send(
        self,
        view: LoadView,
        request: int,
        time_ns: int,
        *,
        worker: int,
        tokens: int,
        blocks: int,
        fresh: int,
    ) -> int: ...
    def end_prefill(self, handle: int, time_ns: int) -> None: ...
    def end(self, handle: int, time_ns: int) -> None: ...
