"""Vidur's CSV files: lengths alone, or requests to replay with the names of columns of new and old versions.

A file of lengths says nothing of arrivals; ``rate`` makes them evenly spaced. There is nothing that tells
prompts apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import ConfigError, TraceError
from kvbench.trace.columns import validity
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.derived import Spacing
from kvbench.trace.formats.tablefiles import CsvTable, header_of
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import TOKENS, IsoTimes, Seconds, Values, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvbench.trace.formats.text import Lines

NEW = ("num_prefill_tokens", "num_decode_tokens")
OLD = ("PromptTokenCount", "CompletionTokenCount")
DERIVED = ("num_total_tokens", "pd_ratio")
MAPPING = (
    "num_prefill_tokens or PromptTokenCount → input_tokens, num_decode_tokens or CompletionTokenCount → "
    "output_tokens, arrived_at or Date with Time → arrival_ns, num_total_tokens and pd_ratio → checked or not used"
)


class VidurFormat(TraceFormat):
    """See the module.

    ``rate``        requests a second, and ``interval_s`` seconds between two, for files without arrivals.
    ``max_tokens``  the most that a request may have, prompt and answer together; 0: no limit.
    ``too_long``    ``reject`` requests that have more, or ``clip`` the prompt, as Vidur does.
    """

    def __init__(
        self, rate: float | None = None, interval_s: float | None = None, max_tokens: int = 0, too_long: str = "reject"
    ) -> None:
        self._spacing = Spacing("trace format vidur", rate, interval_s)
        self._max_tokens = max_tokens
        self._clip = too_long == "clip"
        self._clipped = 0
        self._clock = IsoTimes()

    def sniff(self, head: bytes, name: str) -> bool:
        names = set(header_of(head))
        return set(NEW) <= names or {"Time", *OLD} <= names

    def facts(self) -> TraceFacts:
        return TraceFacts(source_format="vidur")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        table = CsvTable(lines)
        prompt, answer = _length_columns(lines.name, table.names)
        timed = bool({"arrived_at", "Time"} & set(table.names))
        if timed and self._spacing.given:
            raise ConfigError(f"{lines.name} has arrivals of its own; leave out rate and interval_s")
        self._clipped = 0
        for piece in table.pieces():
            rows = Rows(piece)
            rows.read("input_tokens", prompt, TOKENS, required=True)
            rows.read("output_tokens", answer, TOKENS, required=True)
            _check_total(rows)
            self._limit(rows)
            if "arrived_at" in table.names:
                rows.read("arrival_ns", "arrived_at", Seconds(9), required=True)
            elif timed:
                log.any_origin = log.any_origin or "Date" in table.names
                rows.take("arrival_ns", "Time", self._times_of_day(rows), required=True)
            else:
                rows.columns["arrival_ns"] = self._spacing.arrivals(len(rows))
            yield rows.batch(lines.name, log)
        self._note(lines.name, timed, log)

    def _note(self, where: str, timed: bool, log: ReadLog) -> None:
        if not timed:
            self._spacing.note(where, log)
        if self._clipped:
            log.notes.append(f"{where}: {self._clipped:,} prompts were clipped to max_tokens={self._max_tokens:,}")

    def _times_of_day(self, rows: Rows) -> Values:
        """Seconds, or a time of day, after midnight of the date, where there is one."""
        midnights = rows.values("Date", self._clock)
        times = rows.values("Time", as_text)
        with_colon = pc.fill_null(pc.match_substring(times, ":"), False)
        plain = Seconds(9)(pc.if_else(with_colon, None, times))
        days = IsoTimes()(pc.if_else(with_colon, pc.binary_join_element_wise("1970-01-01", times, " "), None))
        since = pc.coalesce(plain.column, days.column)
        refused = {**plain.refused, **days.refused}
        return Values(pc.add(since, pc.fill_null(midnights, 0)), refused)

    def _limit(self, rows: Rows) -> None:
        if not self._max_tokens:
            return
        prompt, answer = rows.numbers("input_tokens"), rows.numbers("output_tokens")
        over = np.maximum(prompt + answer - self._max_tokens, 0)
        hopeless = (over > 0) & ((over >= prompt) | (not self._clip))
        for row in np.flatnonzero(hopeless & rows.good()).tolist():
            rule = f"prompt and answer have more than max_tokens={self._max_tokens}"
            advice = "the answer alone does" if self._clip else "too_long=clip shortens the prompt"
            rows.refuse(row, "tokens", int(prompt[row] + answer[row]), f"{rule}; {advice}")
        clipped = (over > 0) & ~hopeless
        self._clipped += int(np.count_nonzero(clipped & rows.good()))
        there = validity(rows.columns["input_tokens"])
        rows.columns["input_tokens"] = pa.array(np.where(clipped, prompt - over, prompt).astype(np.uint32), mask=~there)


def _length_columns(where: str, names: Sequence[str]) -> tuple[str, str]:
    pair = OLD if set(OLD) & set(names) else NEW
    known = {*NEW, "arrived_at", *DERIVED} if pair is NEW else {*OLD, "Date", "Time"}
    missing = [name for name in pair if name not in names]
    if missing:
        raise TraceError(f"{where}: there is no column {missing[0]!r}; columns are read so: {MAPPING}")
    for name in names:
        if name not in known:
            raise TraceError(
                f"{where}: unknown column {name!r}; columns are read so: {MAPPING}; "
                "for others there is --format columns"
            )
    return pair


def _check_total(rows: Rows) -> None:
    if "num_total_tokens" not in rows.piece.names():
        return
    total = rows.values("num_total_tokens", TOKENS)
    wanted = rows.numbers("input_tokens") + rows.numbers("output_tokens")
    there = validity(total)
    off = there & (total.fill_null(0).to_numpy() != wanted)
    for row in np.flatnonzero(off & rows.good()).tolist():
        rule = f"is not the sum of prompt and answer, {wanted[row]}"
        rows.refuse(row, "num_total_tokens", total[row].as_py(), rule)
