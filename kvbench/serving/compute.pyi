from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

MIXES: tuple[str, ...]

class ComputeContext:
    __slots__ = ("kv_dtype", "model", "models_file", "tp")

    model: str | None
    tp: int | None
    kv_dtype: str | None
    models_file: Path | None
    def __init__(
        self,
        *,
        model: str | None = None,
        tp: int | None = None,
        kv_dtype: str | None = None,
        models_file: Path | None = None,
    ) -> None: ...

class ComputeModel:
    def __new__(cls, context: ComputeContext, *args: Any, **kwargs: Any) -> Self: ...
    def step_time_ns(
        self,
        chunks: Iterable[tuple[int, int, int]],
        decodes: int = 0,
        decode_context: int = 0,
        held_tokens: int = 0,
        capacity_tokens: int = 0,
        *,
        exact: bool = False,
    ) -> float: ...
    def prefill_time_ns(self, new: int, context: int = 0) -> int: ...

class FloatModel(ComputeModel): ...

class MixedModel(FloatModel):
    def set_mix(self, mix: str) -> None: ...

class ComputeStep:
    @property
    def prefills(self) -> int: ...
    @property
    def decodes(self) -> int: ...
    @property
    def new_tokens(self) -> int: ...
    @property
    def decode_context(self) -> int: ...
    @property
    def held_tokens(self) -> int: ...
    @property
    def capacity_tokens(self) -> int: ...
    @property
    def chunks(self) -> list[tuple[int, int, int]]: ...

class PythonComputeModel(ComputeModel):
    def __init__(self, context: ComputeContext) -> None: ...
    def step(self, step: ComputeStep) -> int: ...
