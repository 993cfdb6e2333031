"""WildChat conversations: ``conversation_hash``, ``model``, ``timestamp`` and ``conversation``, a list of messages.

One JSON list of conversations, one conversation a line, or Parquet, which is never guessed. Each
answer is a request: its prompt is all before it. The time of an answer is its message's ``timestamp``
where there is one; of the others the conversation's counts for the first, and each later one follows
at a steady pace. ``hashed_ip`` is left out: as a tenant it would forbid the reuse between users that
the log is there to show.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from kvbench.errors import TraceError
from kvbench.trace.formats.chattext import ChatText
from kvbench.trace.formats.documents import BadValue, documents, outline
from kvbench.trace.formats.instants import instant_ns
from kvbench.trace.formats.sharegpt import turns_of
from kvbench.trace.formats.tablefiles import ParquetTable
from kvbench.trace.formats.textrows import TextFormat, TextRow, note, optional_text
from kvbench.trace.sources import PARQUET_MAGIC
from kvbench.units import MAX_NS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.text import Lines

IGNORED_FIELDS = ("hashed_ip", "header", "country", "state", "openai_moderation", "detoxify_moderation")


class WildChatFormat(TextFormat):
    """See the module. ``turn_s``: the pace, in seconds. ``time_unit``: of times that are numbers."""

    name = "wildchat"
    absolute_times = True
    reads_tables = True

    def __init__(self, *, turn_s: float = 30.0, time_unit: str = "s", **rule: Any) -> None:
        super().__init__(**rule)
        self._unit = time_unit
        self._turn_ns = round(turn_s * NS_PER_S)

    def sniff(self, head: bytes, name: str) -> bool:
        starts, _ = outline(head)
        return "conversation_hash" in starts and starts.get("conversation") == "["

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        note(
            log,
            "arrivals",
            "the time that a message has is when it was received, an answer's when it was complete; "
            f"turns without one follow {self._turn_ns / NS_PER_S:g} s after the turn before",
        )
        yield from self.batches(self._rows(lines, log), log)

    def _rows(self, lines: Lines, log: ReadLog) -> Iterator[TextRow]:
        chat = ChatText(self.rule, log)
        parquet = lines.head().startswith(PARQUET_MAGIC)
        for number, document in _rows_of_parquet(lines) if parquet else documents(lines, log):
            try:
                rows = self._conversation(document, number, chat, log)
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
                continue
            yield from rows
            for name in IGNORED_FIELDS:
                if document.get(name) is not None:
                    log.ignored_fields[name] += len(rows)

    def _conversation(self, document: dict[str, Any], number: int, chat: ChatText, log: ReadLog) -> list[TextRow]:
        session = optional_text("conversation_hash", document.get("conversation_hash"))
        model = optional_text("model", document.get("model"))
        rows: list[TextRow] = []
        estimated = 0
        for message, prompt, answer in turns_of("conversation", document.get("conversation"), chat):
            said = message.get("timestamp")
            if said is None and rows:
                estimated += 1
                arrival_ns = min(rows[-1].arrival_ns + self._turn_ns, MAX_NS)
            else:
                arrival_ns = instant_ns("timestamp", document.get("timestamp") if said is None else said, self._unit)
            turn = len(rows)
            rows.append(TextRow(arrival_ns, prompt, number, output=answer, session_id=session, turn=turn, model=model))
        log.estimated_arrivals += estimated
        return rows


def _rows_of_parquet(lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row with its number from 1, its times as text."""
    for piece in ParquetTable(lines).pieces():
        for number, row in zip(piece.numbers.tolist(), piece.table.to_pylist(), strict=True):
            messages = row.get("conversation")
            for table in (row, *(messages if isinstance(messages, list) else ())):
                if isinstance(table, dict) and isinstance(table.get("timestamp"), datetime):
                    table["timestamp"] = table["timestamp"].isoformat()
            yield number, row
