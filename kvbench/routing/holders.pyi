from collections.abc import Sequence
from typing import Self

class Holders:
    def __new__(
        cls,
        workers: int,
        dense: bool = False,
        groups: Sequence[tuple[int, int]] = ((1, 1),),
        counts_copies: bool = False,
        predicts: bool = False,
    ) -> Self: ...
    @property
    def workers(self) -> int: ...
    @property
    def tiers(self) -> int: ...
    @property
    def counts_copies(self) -> bool: ...
    @property
    def held(self) -> int: ...
    @property
    def unmatched(self) -> int: ...
