from collections.abc import Sequence
from typing import Self

from kvbench.serving.link import Link

class Flows:
    def __new__(cls, links: list[Link]) -> Self: ...
    @property
    def links(self) -> list[Link]: ...
    def add_path(self, links: Sequence[int], *, pipelined: bool = True) -> int: ...
