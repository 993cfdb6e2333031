from typing import Any, Self

class RouterContext:
    __slots__ = ("seed", "workers")

    seed: int
    workers: int
    def __init__(self, workers: int, seed: int = 0) -> None: ...

class RouterPolicy:
    def __new__(cls, context: RouterContext, *args: Any, **kwargs: Any) -> Self: ...
    @property
    def workers(self) -> int: ...

class PythonRouter(RouterPolicy):
    def __init__(self, context: RouterContext) -> None: ...
    def choose(self, overlap: memoryview, blocks: int) -> int: ...
