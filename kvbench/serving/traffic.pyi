from typing import Self

from typing_extensions import disjoint_base

from kvbench.serving.clock import Clock
from kvbench.serving.links import Transfers

@disjoint_base
class Traffic:
    def __new__(cls, clock: Clock, transfers: Transfers) -> Self: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def transfers(self) -> Transfers: ...
    @property
    def lost_chunks(self) -> int: ...
