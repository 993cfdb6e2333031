"""Rows that were left out instead of ending the run."""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_EXAMPLES = 5


@dataclass(slots=True)
class Rejected:
    """How many rows were left out, and the messages of the first few."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, message: str) -> None:
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(message)
