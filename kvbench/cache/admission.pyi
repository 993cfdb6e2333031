from collections.abc import Sequence
from typing import Any, Self, final

from typing_extensions import disjoint_base

class AdmissionContext:
    capacity: int | None
    seed: int
    def __init__(self, capacity: int | None, seed: int = 0) -> None: ...

@disjoint_base
class AdmissionFilter:
    def __new__(cls, context: AdmissionContext, *args: Any, **kwargs: Any) -> Self: ...
    @property
    def asks_presence(self) -> bool: ...

class PythonAdmission(AdmissionFilter):
    def __init__(self, context: AdmissionContext) -> None: ...
    def admit(self, keys: memoryview[int]) -> Sequence[bool]: ...

@final
class Presence(AdmissionFilter): ...

@final
class MinCount(AdmissionFilter):
    def __new__(cls, context: AdmissionContext, *, n: int = 2, tracked: int = 64000) -> Self: ...

@final
class TinyLfu(AdmissionFilter):
    def __new__(cls, context: AdmissionContext, *, min_count: int = 8, counters: int = 2097152) -> Self: ...
