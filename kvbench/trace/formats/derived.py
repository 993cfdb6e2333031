"""Arrivals and pauses that a file does not say itself, worked out of what it says."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import ConfigError
from kvbench.trace.columns import validity
from kvbench.units import MAX_NS, NS_PER_S

if TYPE_CHECKING:
    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.tabular import Rows


class Spacing:
    """Arrivals for files that have none: evenly spaced, or all at 0.

    ``rate``        requests a second.
    ``interval_s``  seconds between two requests; at most one of both may be given.
    """

    def __init__(self, owner: str, rate: float | None, interval_s: float | None) -> None:
        if rate is not None and interval_s is not None:
            raise ConfigError(f"{owner}: rate and interval_s say the same; give one of them")
        self.given = rate is not None or interval_s is not None
        self._gap_ns = Fraction(0)
        if rate is not None:
            self._gap_ns = NS_PER_S / Fraction(str(rate))
        elif interval_s is not None:
            self._gap_ns = NS_PER_S * Fraction(str(interval_s))
        self._rows = 0

    def arrivals(self, count: int) -> pa.Array:
        """The arrivals of the next ``count`` rows. Raises ConfigError where they are beyond all time."""
        gap, first = self._gap_ns, self._rows
        self._rows += count
        if self._rows * gap > MAX_NS:
            raise ConfigError("the last request arrives too late; times are counted in 64-bit nanoseconds")
        times = [position * gap.numerator // gap.denominator for position in range(first, self._rows)]
        return pa.array(times, pa.int64())

    def note(self, where: str, log: ReadLog) -> None:
        """Says in ``log`` what became of the arrivals of a file that has none."""
        if not self.given:
            log.notes.append(f"{where}: has no arrivals, so all requests arrive at 0; rate=10 would space them evenly")


class Turns:
    """Numbers the requests of each session, and tells the pauses between the end of one and the next one's arrival."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int, int | None]] = {}

    def add(self, rows: Rows, session: str, took_ns: list[int | None]) -> None:
        """Fill in ``turn`` and ``think_time_ns`` of ``rows`` that have a session.

        ``session``  the foreign column, for messages; ``took_ns`` how long each request took, where that is known.
        A request that comes before the end of the one before has a pause of 0. The requests of a session must be
        in order of arrival; rows that are not are refused.
        """
        names = rows.columns["session_id"]
        turns: list[int | None] = [None] * len(rows)
        pauses: list[int | None] = [None] * len(rows)
        if names.null_count < len(rows):
            arrivals, texts = rows.numbers("arrival_ns").tolist(), names.to_pylist()
            for row in np.flatnonzero(validity(names) & rows.good()).tolist():
                turn, before, end = self._last.get(texts[row], (0, 0, None))
                arrival, took = arrivals[row], took_ns[row]
                if arrival < before:
                    rule = "arrives before an earlier row of its session; sort the file by time to have think times"
                    rows.refuse(row, session, texts[row], rule)
                    continue
                turns[row] = turn
                pauses[row] = None if end is None else max(0, arrival - end)
                self._last[texts[row]] = (turn + 1, arrival, None if took is None else arrival + took)
        rows.columns["turn"] = pa.array(turns, pa.uint32())
        rows.columns["think_time_ns"] = pa.array(pauses, pa.int64())


def fill_blocks(rows: Rows, ids: str, block_tokens: int) -> None:
    """Take the prompts to fill all blocks that have an id; ``ids`` is the foreign column, for messages."""
    counts = pc.fill_null(pc.list_value_length(rows.columns["block_ids"]).cast("int64"), 0)
    tokens = pc.multiply(counts, block_tokens)
    for row, count in enumerate(tokens.to_pylist()):
        if not 0 < count < 2**32:
            rule = "there must be one id at least" if count == 0 else "the prompt would be too long"
            rows.refuse(row, ids, count // block_tokens, rule)
    rows.columns["input_tokens"] = pc.if_else(pc.less(tokens, 2**32), tokens, 0).cast("uint32")
