from typing import Self

from typing_extensions import disjoint_base

from kvbench.serving.compute import ComputeModel
from kvbench.serving.holdings import Observer
from kvbench.serving.mover import Mover
from kvbench.serving.traffic import Traffic

@disjoint_base
class Batching:
    def __new__(
        cls,
        number: int,
        mover: Mover,
        traffic: Traffic,
        observer: Observer,
        compute: ComputeModel,
        *,
        batch_tokens: int = 8192,
        sequences: int = 256,
        fetches: int = 8,
        chunked: bool = True,
        blocking: bool = False,
        decodes: bool = True,
        step_overhead_ns: int = 0,
        rebuild_ns: int = 0,
    ) -> Self: ...
    @property
    def number(self) -> int: ...
    @property
    def batch_tokens(self) -> int: ...
    @property
    def sequences(self) -> int: ...
    @property
    def fetches(self) -> int: ...
    @property
    def chunked(self) -> bool: ...
    @property
    def blocking(self) -> bool: ...
    @property
    def decodes_answers(self) -> bool: ...
    @property
    def busy(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def prefill_tokens(self) -> int: ...
    @property
    def decode_tokens(self) -> int: ...
    @property
    def preemptions(self) -> int: ...
    @property
    def rebuilds(self) -> int: ...
    @property
    def idle_steps(self) -> int: ...
    @property
    def ended(self) -> int: ...
