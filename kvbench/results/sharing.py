"""How sessions go, whether their prompts grow, and what tenants hit.

Memory: some bytes a session and a tenant by name, and 8 a think time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.results.carry import Latest, Names, grown
from kvbench.results.rates import ratio
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvbench.results.columns import RequestColumns

    Int64s = npt.NDArray[np.int64]

NOBODY = -2
TOP = 20
"""Tenants that are reported one by one."""
FEW = 20
"""Of fewer later turns nothing is concluded."""
SHRINKING = 0.5
STEEPER = 0.95


class Sessions:
    """Turns and think times, and what prompts of one session say of each other."""

    def __init__(self) -> None:
        self._names = Names()
        self._rows = np.zeros(0, np.int64)
        self._alone = 0
        self._input = Latest(NOBODY)
        self._growth = Latest(-(2**62))
        self._later = self._shorter = self._steps = self._steeper = 0
        self._first_shorter: int | None = None

    def add(self, columns: RequestColumns, first_row: int) -> Int64s | None:
        """Take in a batch; returns the number of each row's session, -1 for none, or None without sessions."""
        batch = columns.batch
        if "session_id" not in batch.schema.names:
            return None
        sessions = self._names.of(batch.column("session_id"))
        there = np.flatnonzero(sessions >= 0)
        ids, tokens = sessions[there], columns.input_tokens[there]
        self._alone += len(sessions) - len(there)
        self._rows = grown(self._rows, len(self._names.numbers), 0)
        self._rows += np.bincount(ids, minlength=len(self._rows))
        before = self._input.before(ids, tokens)
        later = np.flatnonzero(before != NOBODY)
        growth = tokens[later] - before[later]
        self._later += len(later)
        self._shorter += int((growth < 0).sum())
        if self._first_shorter is None and (growth < 0).any():
            self._first_shorter = first_row + int(there[later[growth < 0][0]])
        last = self._growth.before(ids[later], growth)
        known = last > -(2**62)
        self._steps += int(known.sum())
        self._steeper += int((growth[known] > last[known]).sum())
        return sessions

    def summary(self) -> dict[str, Any] | None:
        """Sessions, rows without one, and turns a session; None without any."""
        turns = self._rows[self._rows > 0]
        if len(turns) == 0:
            return None
        return {
            "sessions": len(turns),
            "rows_without": self._alone,
            "turns_mean": float(turns.mean()),
            "turns_p50": float(np.percentile(turns, 50)),
            "turns_p90": float(np.percentile(turns, 90)),
            "turns_max": int(turns.max()),
            "one_turn_share": float((turns == 1).mean()),
            "later_turns": self._later,
            "shorter_than_before": self._shorter,
        }

    def remarks(self, number_of: Callable[[int], int]) -> list[str]:
        """What prompts that do not grow, or grow ever faster, may mean."""
        if self._later >= FEW and self._shorter > SHRINKING * self._later and self._first_shorter is not None:
            return [
                f"{self._shorter:,} of {self._later:,} later turns have a shorter prompt than the turn before, row "
                f"{number_of(self._first_shorter)} first: each row may hold what its turn adds, not the whole prompt"
            ]
        if self._steps >= FEW and self._steeper >= STEEPER * self._steps:
            return [
                f"prompts grow by more than at the turn before in {self._steeper:,} of {self._steps:,} turns: "
                "rows that held the whole prompt may have been added up as if each held what its turn adds"
            ]
        return []


class TenantHits:
    """What tenants hit in a cache that holds everything."""

    def __init__(self, block_tokens: int | None) -> None:
        self._block_tokens = block_tokens or 0
        self._tenants = Names()
        self._figures = np.zeros((0, 5), np.int64)

    def add(self, columns: RequestColumns) -> None:
        """Take in a batch."""
        if "tenant" not in columns.batch.schema.names:
            return
        hits = columns.infinite_hit_blocks
        tenants = self._tenants.of(columns.batch.column("tenant"))
        tokens = np.minimum(hits * self._block_tokens, columns.input_tokens)
        figures = (np.ones_like(hits), columns.blocks, hits, columns.input_tokens, tokens)
        self._figures = np.concatenate(
            [self._figures, np.zeros((len(self._tenants.numbers) - len(self._figures), 5), np.int64)]
        )
        there = tenants >= 0
        for at, values in enumerate(figures):
            np.add.at(self._figures[:, at], tenants[there], values[there])

    def summary(self) -> dict[str, Any] | None:
        """The number of tenants, and figures of those with most rows; None without any."""
        if not self._tenants.numbers:
            return None
        names = list(self._tenants.numbers)
        order = np.argsort(-self._figures[:, 0], kind="stable")[:TOP]
        return {
            "tenants": len(names),
            "top": [
                {
                    "tenant": names[at],
                    "rows": int(rows),
                    "asked_blocks": int(asked),
                    "hit_blocks": int(hit),
                    "token_rate": ratio(int(tokens), int(given)) if self._block_tokens else None,
                }
                for at in order.tolist()
                for rows, asked, hit, given, tokens in [self._figures[at]]
            ],
        }


class ThinkTimes:
    """The pauses between a turn's end and the next turn."""

    def __init__(self) -> None:
        self._parts: list[Int64s] = []

    def add(self, columns: RequestColumns) -> None:
        """Take in a batch."""
        if "think_time_ns" in columns.batch.schema.names:
            self._parts.append(np.array(numbers(columns.batch.column("think_time_ns").drop_null())))

    def values(self) -> Int64s:
        return np.concatenate(self._parts) if self._parts else np.zeros(0, np.int64)
