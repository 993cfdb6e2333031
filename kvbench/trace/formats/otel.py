"""OpenTelemetry spans of GenAI calls, with the text of their messages.

A member is a document with ``spans`` (as inference-perf has them), or OTLP JSON, or has a span a line. Of spans
that are no calls of a model (no input messages) nothing is read. A call waits for another if it
starts when that has ended and one of its messages contains that one's output; of several, for the
one that ended last. The pause between them, cut to ``max_gap_ms``, is the think time.

A session of a trace is a chain, each turn after the one before, while calls form a graph. So a call
goes on with the session of the call that it waits for if no other call does so already, and begins
a new one otherwise, at its recorded time. A chain is named after the session of its spans
(``….session.id``, ``gen_ai.conversation.id``, else the trace id) and, but for the first, its first span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbench.errors import TraceError
from kvbench.trace.formats.chattext import ChatText
from kvbench.trace.formats.documents import BadValue, decode_line, documents, outline
from kvbench.trace.formats.instants import instant_ns
from kvbench.trace.formats.otlp import TOP, flat_spans
from kvbench.trace.formats.textrows import TextFormat, TextRow, Usage, note, optional_count, optional_text
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.text import Lines

INPUT_FIELDS = ("gen_ai.input.messages", "gen_ai.prompt")
OUTPUT_FIELDS = ("gen_ai.output.messages", "gen_ai.output.text", "gen_ai.completion")
STATED_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
STATED_OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CONVERSATION_FIELD = "gen_ai.conversation.id"
NS_PER_MS = 1_000_000

MIN_CONTAINED = 16
"""Characters from which on an output inside a longer message is taken for a quotation, not for chance."""


@dataclass(slots=True)
class _Call:
    """A call of a model: its row, and what tells who waits for whom. ``follower``: a call goes on with its chain."""

    row: TextRow
    session: str
    end_ns: int
    texts: list[str]
    said: str
    follower: bool = False


class OtelFormat(TextFormat):
    """See the module. ``max_gap_ms``: the longest pause."""

    name = "otel"
    absolute_times = True

    def __init__(self, *, max_gap_ms: float = 15_000.0, **rule: Any) -> None:
        super().__init__(**rule)
        self._max_gap_ns = round(max_gap_ms * NS_PER_MS)
        self._usage = Usage()
        self._chains: set[str] = set()
        self._cut = 0
        self._branches = 0

    def sniff(self, head: bytes, name: str) -> bool:
        starts, _ = outline(head)
        return "[" in (starts.get("spans"), starts.get(TOP)) or (
            "span_id" in starts and starts.get("attributes") == "{"
        )

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        yield from self.batches(self._rows(lines, log), log)

    def _rows(self, lines: Lines, log: ReadLog) -> list[TextRow]:
        chat = ChatText(self.rule, log)
        calls: list[_Call] = []
        for number, span in _spans(lines, log):
            try:
                call = self._call(span, number, chat, log)
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
                continue
            if call is None:
                log.ignored_fields["spans without input messages"] += 1
            else:
                calls.append(call)
        self._link(calls)
        self._tell(log)
        return [call.row for call in calls]

    def _call(self, span: dict[str, Any], number: int, chat: ChatText, log: ReadLog) -> _Call | None:
        attributes = span.get("attributes")
        if not isinstance(attributes, dict):
            raise BadValue("attributes", attributes, "must be an object")
        messages = _messages(attributes, INPUT_FIELDS, "user")
        if messages is None:
            return None
        answers = _messages(attributes, OUTPUT_FIELDS, "assistant")
        arrival_ns = instant_ns("start_time", span.get("start_time"), "ns")
        end = span.get("end_time")
        output = None if not answers else chat.answer(answers[0])
        row = TextRow(
            arrival_ns,
            chat.prompt(messages),
            number,
            output=output,
            output_tokens=_stated(attributes, STATED_OUTPUT),
            request_id=optional_text("span_id", span.get("span_id")),
            model=optional_text("model", attributes.get("gen_ai.request.model")),
        )
        self._usage.see(_stated(attributes, STATED_INPUT), len(row.prompt), log)
        return _Call(
            row,
            session=_session(span, attributes),
            end_ns=arrival_ns if end is None else instant_ns("end_time", end, "ns"),
            texts=[chat.content(message) for message in messages],
            said="" if not answers else chat.content(answers[0]),
        )

    def _link(self, calls: list[_Call]) -> None:
        """Give each call its session, turn and think time."""
        groups: dict[str, list[_Call]] = {}
        for call in sorted(calls, key=lambda call: call.row.arrival_ns):
            earlier = groups.setdefault(call.session, [])
            before = _awaited(call, earlier)
            if before is None or before.follower:
                self._branches += before is not None
                call.row.session_id = self._new_chain(call)
                call.row.turn = 0
            else:
                before.follower = True
                gap_ns = call.row.arrival_ns - before.end_ns
                self._cut += gap_ns > self._max_gap_ns
                call.row.session_id = before.row.session_id
                call.row.turn = (before.row.turn or 0) + 1
                call.row.think_time_ns = min(gap_ns, self._max_gap_ns)
            earlier.append(call)

    def _new_chain(self, call: _Call) -> str:
        name = call.session
        count = 1
        while name in self._chains:
            count += 1
            first = call.row.request_id or ""
            name = f"{call.session}/{first}" if count == 2 and first else f"{call.session}/{first}#{count}"
        self._chains.add(name)
        return name

    def _tell(self, log: ReadLog) -> None:
        if self._branches:
            note(
                log,
                "branches",
                f"{self._branches:,} calls wait for a call that another one goes on with already; a session is a "
                "chain, so they begin sessions of their own, at their recorded times",
            )
        if self._cut:
            note(log, "gaps", f"{self._cut:,} think times were cut to {self._max_gap_ns / NS_PER_MS:,g} ms")


def _spans(lines: Lines, log: ReadLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """The spans of a member with their number from 1: in their document, or of their line."""
    for number, document in documents(lines, log):
        try:
            spans = [*flat_spans(document)] if TOP in document else document.get("spans")
        except BadValue as bad:
            log.refuse(TraceError.at(lines.name, number, *bad.args))
            continue
        if spans is None:
            yield number, document
            continue
        if not isinstance(spans, list):
            log.refuse(TraceError.at(lines.name, number, "spans", spans, "must be a list"))
            continue
        for position, span in enumerate(spans, 1):
            if isinstance(span, dict):
                yield position, span
            else:
                log.refuse(TraceError.at(lines.name, position, "span", span, "must be an object"))


def _messages(attributes: dict[str, Any], names: tuple[str, ...], role: str) -> list[dict[str, Any]] | None:
    """The messages in the first of ``names`` that is there: a list, a list as JSON text, or plain text."""
    name = next((name for name in names if attributes.get(name) is not None), None)
    if name is None:
        return None
    value = attributes[name]
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return [{"role": role, "content": value}]
        try:
            value = decode_line(value.encode("utf-8", "surrogatepass"))
        except BadValue as bad:
            raise BadValue(name, bad.args[1], bad.args[2]) from None
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise BadValue(name, value, "must be a list of messages")
    return value


def _awaited(call: _Call, earlier: list[_Call]) -> _Call | None:
    """The call that ended last of those that ended when ``call`` began and whose output its messages contain."""
    ended = [other for other in earlier if other.end_ns <= call.row.arrival_ns and other.said.strip()]
    ended.sort(key=lambda other: other.end_ns, reverse=True)
    return next((other for other in ended if _contained(other.said, call.texts)), None)


def _contained(said: str, texts: list[str]) -> bool:
    return said in texts or (len(said) >= MIN_CONTAINED and any(said in text for text in texts))


def _session(span: dict[str, Any], attributes: dict[str, Any]) -> str:
    named = [key for key in attributes if key.endswith("session.id")]
    for key in (*sorted(named), CONVERSATION_FIELD):
        if attributes.get(key) is not None:
            return optional_text(key, attributes[key]) or ""
    return optional_text("trace_id", span.get("trace_id")) or ""


def _stated(attributes: dict[str, Any], names: tuple[str, ...]) -> int | None:
    name = next((name for name in names if attributes.get(name) is not None), names[0])
    return optional_count(name, attributes.get(name), MAX_TOKENS)
