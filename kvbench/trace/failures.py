"""What a check says of the rows that break a rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbench.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.trace.columns import Int64s


class Phrase(str):
    """Words to stand for a value in a message; shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Failure:
    """Rows of a batch (ascending indices, at least one) that break one rule.

    ``value`` and ``rule`` make the message's parts for a row; they run only for rows that are shown.
    """

    rows: Int64s
    field: str
    value: Callable[[int], object]
    rule: Callable[[int], str]

    def error(self, where: str, row: int, number: int) -> TraceError:
        """The error for batch row ``row``, which is row ``number`` of the file."""
        return TraceError.at(where, number, self.field, self.value(row), self.rule(row))
