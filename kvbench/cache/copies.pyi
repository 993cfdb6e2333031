from typing_extensions import disjoint_base

from kvbench.cache.tier import Tier

@disjoint_base
class CopyStore(Tier): ...
