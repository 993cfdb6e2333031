"""Who of several equal workers gets a request. On cold caches this decides more than the scores do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvbench.routers.terms import Load
    from kvbench.routing import RandomStream

    Workers = npt.NDArray[np.intp]
    Figures = npt.NDArray[np.float64] | npt.NDArray[np.int64] | npt.NDArray[np.int32]


class Ties:
    """Breaks ties by ``rule``, one of :data:`kvbench.builtin_routers.TIE_RULES`."""

    def __init__(self, rule: str, known: Load, random: RandomStream) -> None:
        rules: dict[str, Callable[[Workers], int]] = {
            "random": self._random,
            "first": lambda equal: int(equal[0]),
            "turns": self._turns,
            "least-requests": lambda equal: self._fewest(equal, known.requests),
            "least-assigned": lambda equal: self._fewest(equal, known.assigned_tokens),
        }
        self._break = rules[rule]
        self._stream = random
        self._last = -1

    def highest(self, figures: Figures, among: Workers | None = None) -> int:
        """The worker with the highest figure; ``among`` restricts them to some (their numbers, rising)."""
        return self._pick(figures, among, np.max)

    def lowest(self, figures: Figures, among: Workers | None = None) -> int:
        """The worker with the lowest figure."""
        return self._pick(figures, among, np.min)

    def any_of(self, equal: Workers) -> int:
        """One of the workers ``equal`` (their numbers, rising; at least one)."""
        return int(equal[0]) if len(equal) == 1 else self._break(equal)

    def _pick(self, figures: Figures, among: Workers | None, extreme: Callable[[Figures], float]) -> int:
        if among is not None:
            figures = figures[among]
        equal = np.flatnonzero(figures == extreme(figures))
        if not len(equal):
            raise PolicyError("a router's figures for its workers are not numbers (NaN), so that none is best")
        return self.any_of(equal if among is None else among[equal])

    def _random(self, equal: Workers) -> int:
        return int(equal[self._stream.below(len(equal))])

    def _turns(self, equal: Workers) -> int:
        at = int(np.searchsorted(equal, self._last, side="right"))
        self._last = int(equal[at % len(equal)])
        return self._last

    def _fewest(self, equal: Workers, load: npt.NDArray[np.int64]) -> int:
        mine = load[equal]
        return self._random(equal[mine == mine.min()])
