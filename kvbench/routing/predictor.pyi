from typing import Any, Self, final

from kvbench.routing.index import KvbmIndex
from kvbench.units import Lag

class Predictor:
    def __new__(cls, index: KvbmIndex, *args: Any, **kwargs: Any) -> Self: ...

@final
class TimedPredictor(Predictor):
    def __new__(cls, index: KvbmIndex, *, ttl: Lag) -> Self: ...

@final
class MirrorPredictor(Predictor):
    def __new__(cls, index: KvbmIndex, *, capacity: int) -> Self: ...
