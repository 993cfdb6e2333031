from typing_extensions import disjoint_base

from kvbench.cache.slots import SlotStore

@disjoint_base
class VictimStore(SlotStore): ...
