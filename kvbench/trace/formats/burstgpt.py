"""BurstGPT's traces: CSV of times, lengths and models; part 3 has sessions and how long an answer took.

``Timestamp`` counts seconds from 0:00 of the first day. No response tokens mark a request that failed: it is
kept, as one that ends with its prefill, or dropped. There is nothing that tells prompts apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.derived import Turns
from kvbench.trace.formats.tablefiles import CsvTable, header_of, require_columns
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import TOKENS, Seconds, as_text
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
OF_SESSIONS = ("Session ID", "Elapsed time")
SECONDS = Seconds(9)


class BurstGptFormat(TraceFormat):
    """See the module. ``failed`` is ``keep`` or ``drop``."""

    def __init__(self, failed: str = "keep") -> None:
        self._keep = failed == "keep"
        self._failed = 0
        self._turns = Turns()

    def sniff(self, head: bytes, name: str) -> bool:
        return {"Timestamp", "Model", "Request tokens", "Response tokens"} <= set(header_of(head))

    def facts(self) -> TraceFacts:
        return TraceFacts(source_format="burstgpt")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        table = CsvTable(lines)
        require_columns(lines.name, table.names, ("Timestamp", "Request tokens", "Response tokens"))
        self._failed = 0
        for piece in table.pieces():
            rows = Rows(piece)
            rows.read("arrival_ns", "Timestamp", SECONDS, required=True)
            rows.read("input_tokens", "Request tokens", TOKENS, required=True)
            rows.read("output_tokens", "Response tokens", TOKENS, required=True)
            rows.read("model", "Model", as_text)
            rows.read("type", "Log Type", as_text)
            self._drop_failed(rows)
            self._add_sessions(rows)
            piece.count(log.ignored_fields, (*COLUMNS, *OF_SESSIONS))
            yield rows.batch(lines.name, log)
        if self._failed:
            what = "kept as requests that end with their prefill" if self._keep else "left out"
            log.notes.append(f"{lines.name}: {self._failed:,} requests failed (no response tokens) and were {what}")

    def _drop_failed(self, rows: Rows) -> None:
        failed = (rows.numbers("output_tokens") == 0) & rows.good()
        self._failed += int(np.count_nonzero(failed))
        if not self._keep:
            rows.keep(~failed)

    def _add_sessions(self, rows: Rows) -> None:
        """Sessions, turns, and the pause since the end of the answer before."""
        rows.read("session_id", "Session ID", as_text)
        took = rows.values("Elapsed time", SECONDS)
        self._turns.add(rows, "Session ID", took.to_pylist())
