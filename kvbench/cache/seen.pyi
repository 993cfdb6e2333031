from typing import Self, final

from kvbench.cache.table import DirectTable

class Seen:
    @property
    def distinct(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

@final
class TableSeen(Seen):
    def __new__(cls, table: DirectTable) -> Self: ...

@final
class DenseSeen(Seen): ...

@final
class ExactSeen(Seen): ...

def make_seen(dense: bool, table: DirectTable | None = None) -> Seen: ...
