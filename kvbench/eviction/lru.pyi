from typing import final

from kvbench.eviction.slotlist import ListPolicy

@final
class Lru(ListPolicy): ...
