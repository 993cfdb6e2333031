from typing_extensions import disjoint_base

from kvbench.cache.copies import CopyStore

@disjoint_base
class FlightStore(CopyStore):
    @property
    def pending(self) -> int: ...
    @property
    def held_back(self) -> int: ...
    def keep_time(self) -> None: ...
