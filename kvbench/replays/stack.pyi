from typing import Self, final

@final
class Stack:
    def __new__(cls) -> Self: ...
    @property
    def distinct(self) -> int: ...
