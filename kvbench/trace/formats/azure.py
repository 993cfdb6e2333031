"""Azure's LLM inference traces of 2023, 2024 and 2025 (with images): CSV of times and lengths.

``TIMESTAMP`` is a date and time of day, with up to nine digits of a second, with a zone or without one.
There is nothing that tells prompts apart, so there are no hits to find: figures of reuse are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.tablefiles import CsvTable, header_of, require_columns
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import TOKENS, IsoTimes
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IMAGES = "NumImages"


class AzureFormat(TraceFormat):
    """See the module."""

    absolute_times = True

    def __init__(self) -> None:
        self._times = IsoTimes()

    def sniff(self, head: bytes, name: str) -> bool:
        names = header_of(head)
        return set(COLUMNS) <= set(names) <= {*COLUMNS, IMAGES}

    def facts(self) -> TraceFacts:
        return TraceFacts(source_format="azure")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        table = CsvTable(lines)
        require_columns(lines.name, table.names, COLUMNS)
        for piece in table.pieces():
            rows = Rows(piece)
            rows.read("arrival_ns", "TIMESTAMP", self._times, required=True)
            rows.read("input_tokens", "ContextTokens", TOKENS, required=True)
            rows.read("output_tokens", "GeneratedTokens", TOKENS)
            piece.count(log.ignored_fields, COLUMNS)
            yield rows.batch(lines.name, log)
