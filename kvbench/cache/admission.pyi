from collections.abc import Sequence
from typing import final

class AdmissionContext:
    capacity: int | None
    seed: int
    def __init__(self, capacity: int | None, seed: int = 0) -> None: ...

class AdmissionFilter:
    def __init__(self, context: AdmissionContext) -> None: ...
    @property
    def asks_presence(self) -> bool: ...

class PythonAdmission(AdmissionFilter):
    def admit(self, keys: memoryview[int]) -> Sequence[bool]: ...

@final
class Presence(AdmissionFilter): ...

@final
class MinCount(AdmissionFilter):
    def __init__(self, context: AdmissionContext, *, n: int = 2, tracked: int = 64_000) -> None: ...

@final
class TinyLfu(AdmissionFilter):
    def __init__(self, context: AdmissionContext, *, min_count: int = 8, counters: int = 2097152) -> None: ...
