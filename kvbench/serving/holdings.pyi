from typing import Self

from typing_extensions import disjoint_base

from kvbench.cache.events import EventLog
from kvbench.cache.stack import TierStack
from kvbench.serving.compute import ComputeModel
from kvbench.serving.traffic import Traffic

@disjoint_base
class Observer: ...

@disjoint_base
class Holdings:
    def __new__(
        cls,
        stack: TierStack,
        traffic: Traffic,
        observer: Observer,
        compute: ComputeModel,
        *,
        block_tokens: int,
        chunk_bytes: list[int],
        reads: list[int],
        writes: list[int],
        log: EventLog | None = None,
        share: bool = False,
        cheaper: bool = False,
    ) -> Self: ...
    @property
    def worker(self) -> int: ...
    @property
    def block_tokens(self) -> int: ...
    @property
    def chunk_tokens(self) -> int: ...
    @property
    def ranks(self) -> int: ...
