"""Rows that were left out instead of ending the run."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

MAX_EXAMPLES = 5


@dataclass(slots=True)
class Rejected:
    """How many rows were left out, and the messages of the first few.

    ``rows``  their numbers in the file (from 1, ascending), where a trace is read.
    """

    count: int = 0
    examples: list[str] = field(default_factory=list)
    rows: array[int] = field(default_factory=lambda: array("q"))

    def add(self, message: str) -> None:
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(message)

    def number_of(self, kept: int) -> int:
        """The number in the file (from 1) of the row that is ``kept`` (from 0) among those not left out."""
        # Before rows[i], so many rows are kept: rows[i] - 1 - i. That never falls as i rises.
        before = bisect_right(range(len(self.rows)), kept, key=lambda i: self.rows[i] - 1 - i)
        return kept + 1 + before
