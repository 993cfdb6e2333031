"""LMCache agent traces: one JSON object a request, usually one file a session.

``timestamp`` (µs since the Unix epoch), ``input`` (the whole prompt), ``output``, ``session_id``. Rows
of a session need not be in order of time, and an output may be empty. There are no ends of requests,
so the pause between them is unknown. In a second variant (the agentic set on Hugging Face) ``input``
is a list of messages, with ``model``, ``output_length`` and ``pre_gap``, the seconds of pause before the
request; it has no times, so each session starts at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.errors import TraceError
from kvbench.trace.formats.chattext import ChatText
from kvbench.trace.formats.documents import BadValue, documents, outline
from kvbench.trace.formats.instants import duration_ns, instant_ns
from kvbench.trace.formats.textrows import TextFormat, TextRow, note, optional_count, optional_text, required_text
from kvbench.units import MAX_NS, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.text import Lines

NO_ENDS = "the log does not say when an answer ended, so the pauses between the requests of a session are unknown"


class LMCacheAgentFormat(TextFormat):
    """See the module."""

    name = "lmcache-agent"
    absolute_times = True

    def sniff(self, head: bytes, name: str) -> bool:
        starts, whole = outline(head)
        if starts.get("input") == "[":
            return "session_id" in starts and ("pre_gap" in starts if whole else "response" not in starts)
        return starts.get("input") == '"' and "timestamp" in starts and ("session_id" in starts or not whole)

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        rows = list(self._rows(lines, log))
        _number_turns(rows)
        yield from self.batches(rows, log)

    def _rows(self, lines: Lines, log: ReadLog) -> Iterator[TextRow]:
        chat = ChatText(self.rule, log)
        ends: dict[str | None, int] = {}
        for number, document in documents(lines, log):
            try:
                if isinstance(document.get("input"), list):
                    yield self._agentic(document, number, chat, ends, log)
                else:
                    yield self._plain(document, number)
                    note(log, "think time", NO_ENDS)
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))

    def _plain(self, document: dict[str, Any], number: int) -> TextRow:
        return TextRow(
            instant_ns("timestamp", document.get("timestamp"), "us"),
            self.rule.encode(required_text("input", document.get("input"))),
            number,
            output=self.rule.encode(required_text("output", document.get("output"))),
            session_id=optional_text("session_id", document.get("session_id")),
        )

    def _agentic(
        self, document: dict[str, Any], number: int, chat: ChatText, ends: dict[str | None, int], log: ReadLog
    ) -> TextRow:
        log.estimated_arrivals += 1
        session = optional_text("session_id", document.get("session_id"))
        gap_ns = duration_ns("pre_gap", document.get("pre_gap"), "s")
        arrival_ns = ends.get(session, -gap_ns) + gap_ns
        if arrival_ns > MAX_NS:
            raise BadValue("pre_gap", document.get("pre_gap"), "puts the arrival too far off")
        row = TextRow(
            arrival_ns,
            chat.prompt(document["input"]),
            number,
            output_tokens=optional_count("output_length", document.get("output_length"), MAX_TOKENS),
            session_id=session,
            think_time_ns=gap_ns if session in ends else None,
            model=optional_text("model", document.get("model")),
        )
        ends[session] = arrival_ns
        return row


def _number_turns(rows: list[TextRow]) -> None:
    """Turns in order of time; equal times in order of the file."""
    turns: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.arrival_ns):
        if row.session_id is not None:
            row.turn = turns.get(row.session_id, 0)
            turns[row.session_id] = row.turn + 1
