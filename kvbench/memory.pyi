from typing import Self

class Memory:
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Int32Memory(Memory):
    def __new__(cls, size: int) -> Self: ...

class UInt64Memory(Memory):
    def __new__(cls, size: int) -> Self: ...
