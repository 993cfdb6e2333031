"""Whether all the rows of a log are there, once each and in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.events.journal import Missing
from kvbench.results.folding import event_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Damage:
    """What is wrong with the numbers of the rows that :meth:`rows` has gone through, for each worker from 0 on.

    ``missing`` events were left out, ``doubled`` rows were there before, ``late`` ones stand behind higher numbers.
    """

    def __init__(self) -> None:
        self.doubled = self.late = 0
        self._following: dict[int, int] = {}
        self._missing: dict[int, Missing] = {}

    @property
    def missing(self) -> int:
        """Events whose numbers do not occur."""
        return sum(each.count for each in self._missing.values())

    def to_dict(self) -> dict[str, int]:
        return {"missing": self.missing, "doubled": self.doubled, "late": self.late}

    def __str__(self) -> str:
        return damage_text(self.missing, self.doubled, self.late)

    def __bool__(self) -> bool:
        return any(self.to_dict().values())

    def rows(self, file: Path) -> Iterator[dict[str, Any]]:
        """The rows of a log, each once. Raises TraceError for a file that is none."""
        for row in event_rows(file):
            if self._is_new(row["worker"], row["sequence"]):
                yield row

    def _is_new(self, worker: int, number: int) -> bool:
        following = self._following.get(worker, 0)
        missing = self._missing.setdefault(worker, Missing())
        if number < following:
            is_new = missing.take(number)
            self.late += is_new
            self.doubled += not is_new
            return is_new
        if number > following:
            missing.skip(following, number)
        self._following[worker] = number + 1
        return True


def damage_text(missing: int, doubled: int, late: int) -> str:
    """Damage in words."""
    return f"{missing:,} events are missing, {doubled:,} rows are doubled, {late:,} stand late"
