"""Which requests the figures of a timed replay are of (semantics §10.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window:
    """Requests count from number ``first_request`` of the replay (from 0) on, if they arrive in
    [``start_ns``, ``end_ns``) of the simulated clock; None: no such bound. The others are served as well, and
    leave the cache as warm as they do."""

    first_request: int = 0
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def has_times(self) -> bool:
        """Whether it bounds the time."""
        return self.start_ns is not None or self.end_ns is not None

    def counted(self, numbers: Int64s, arrival_ns: Int64s) -> Bools:
        """Which of some requests count, whose ``numbers`` these are."""
        return (numbers >= self.first_request) & self.holds(arrival_ns)

    def holds(self, time_ns: Int64s) -> Bools:
        """Which times lie in it."""
        held = np.ones(len(time_ns), dtype=bool)
        if self.start_ns is not None:
            held &= time_ns >= self.start_ns
        if self.end_ns is not None:
            held &= time_ns < self.end_ns
        return held

    def to_dict(self) -> dict[str, Any]:
        """Its bounds."""
        return {"first_request": self.first_request, "start_ns": self.start_ns, "end_ns": self.end_ns}
