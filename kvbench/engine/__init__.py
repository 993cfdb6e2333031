"""The cache engine as a library: store, look up, retrieve (see :class:`CacheEngine`).

engine.py    the calls
base.py      what is behind them
pool.py      what engines share: the stacks of tiers, and leases
chunks.py    the chunks of one call as the stacks know them
metadata.py  what KV bytes depend on beside the tokens
answers.py   what calls give
stats.py     what an engine has counted
costs.py     what the phases of a store cost
"""

from kvbench.engine.answers import Operation, Retrieved, StoreResult
from kvbench.engine.costs import EngineCosts
from kvbench.engine.engine import CacheEngine
from kvbench.engine.metadata import EngineMetadata
from kvbench.engine.stats import EngineStats

__all__ = [
    "CacheEngine",
    "EngineCosts",
    "EngineMetadata",
    "EngineStats",
    "Operation",
    "Retrieved",
    "StoreResult",
]
