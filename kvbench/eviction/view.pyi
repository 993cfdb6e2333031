from typing import Self

class TierView:
    def __new__(cls, slots: int) -> Self: ...
