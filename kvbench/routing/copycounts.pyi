from typing import Self, final

@final
class CopyCounts:
    def __new__(cls) -> Self: ...
