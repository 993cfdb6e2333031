from typing import Self, final

@final
class Numbering:
    def __new__(cls) -> Self: ...
