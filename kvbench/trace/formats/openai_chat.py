"""Logs of chat requests in the shape of the OpenAI API, one JSON object a line.

Gateways wrap the same two bodies in different ways. Read are: ``{"request": {…}, "response": {…}}``; a
batch file's ``{"custom_id", "body": {…}, "response": {"body": {…}}}``; and the request's own fields beside
``response``. A request has ``messages`` (or ``input``), and may have ``model`` and ``tools``; a response has
``choices`` (or ``output``) and ``usage``. Beside them stand the time of arrival, the time of the end or the
duration, and the name of the session; see the lists below for their names. With ends known, the
pause before a later turn of a session is known too (from the end of the turn before).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvbench.errors import TraceError
from kvbench.trace.formats.chattext import ChatText
from kvbench.trace.formats.documents import BadValue, documents, outline
from kvbench.trace.formats.instants import duration_ns, instant_ns
from kvbench.trace.formats.textrows import TextFormat, TextRow, Usage, optional_count, optional_text
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.text import Lines

START_FIELDS = (
    "timestamp",
    "start_time",
    "startTime",
    "request_time",
    "arrival_time",
    "time",
    "created_at",
    "created",
)
END_FIELDS = ("end_time", "endTime", "response_time")
DURATION_FIELDS = {
    "duration_ms": "ms",
    "latency_ms": "ms",
    "duration_s": "s",
    "latency_s": "s",
}
SESSION_FIELDS = ("session_id", "conversation_id", "chat_id", "thread_id")
ID_FIELDS = ("request_id", "custom_id", "id")
IGNORED_FIELDS = ("user", "cost", "metadata", "response_cost")
MESSAGE_FIELDS = ("messages", "input")
REQUEST_FIELDS = ("request", "request_body", "body")
FOREIGN_FIELDS = {"output_length", "pre_gap", "input_length", "hash_ids", "conversation_hash"}
"""Rows with these are of other formats: Mooncake's with messages, the agentic set of LMCache, WildChat."""
DYNAMO_SCHEMA = b'"dynamo.request.trace.'
"""Dynamo's request trace may have texts among its records, and is of a format of its own."""


class OpenAIChatFormat(TextFormat):
    """See the module. ``time_unit``: of times that are numbers."""

    name = "openai-chat"
    absolute_times = True

    def __init__(self, *, time_unit: str = "s", **rule: Any) -> None:
        super().__init__(**rule)
        self._unit = time_unit
        self._usage = Usage()
        self._sessions: dict[str, tuple[int, int | None]] = {}

    def sniff(self, head: bytes, name: str) -> bool:
        starts, whole = outline(head)
        if FOREIGN_FIELDS & set(starts) or DYNAMO_SCHEMA in head:
            return False
        wrapped = any(starts.get(name) == "{" for name in REQUEST_FIELDS)
        if wrapped:
            return re.search(rb'"(messages|input)"\s*:\s*\[', head) is not None
        answered = bool({"response", "response_body", "choices"} & set(starts)) or not whole
        return answered and starts.get("messages") == "["

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        yield from self.batches(self._rows(lines, log), log)

    def _rows(self, lines: Lines, log: ReadLog) -> Iterator[TextRow]:
        chat = ChatText(self.rule, log)
        for number, document in documents(lines, log):
            try:
                row = self._row(document, number, chat, log)
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
                continue
            for name in IGNORED_FIELDS:
                if document.get(name) is not None:
                    log.ignored_fields[name] += 1
            yield row

    def _row(self, document: dict[str, Any], number: int, chat: ChatText, log: ReadLog) -> TextRow:
        request, response = _request(document), _response(document)
        usage = response.get("usage") or document.get("usage") or {}
        if not isinstance(usage, dict):
            raise BadValue("usage", usage, "must be an object")
        _, messages = _first(request, MESSAGE_FIELDS)
        answer = _answer(response)
        arrival_ns = self._arrival(document, response)
        row = TextRow(
            arrival_ns,
            chat.prompt(messages, request.get("tools")),
            number,
            output=None if answer is None else chat.answer(answer),
            output_tokens=_count(usage, ("completion_tokens", "output_tokens")),
            request_id=optional_text("request_id", _first(document, ID_FIELDS)[1] or response.get("id")),
            session_id=_session(document, request),
            model=optional_text("model", request.get("model", response.get("model"))),
        )
        stated = _count(usage, ("prompt_tokens", "input_tokens"))
        end_ns = self._end(document, arrival_ns)
        self._place(row, end_ns)
        self._usage.see(stated, len(row.prompt), log)
        return row

    def _arrival(self, document: dict[str, Any], response: dict[str, Any]) -> int:
        name, value = _first(document, START_FIELDS)
        if value is None:
            name, value = "response.created", response.get("created")
        if value is None:
            raise BadValue("timestamp", None, f"is missing; a time is looked for in {', '.join(START_FIELDS)}")
        # The API's own field counts seconds, whatever the log around it does.
        unit = "s" if name in ("created", "response.created") else self._unit
        return instant_ns(name, value, unit)

    def _end(self, document: dict[str, Any], arrival_ns: int) -> int | None:
        name, value = _first(document, END_FIELDS)
        if value is not None:
            return instant_ns(name, value, self._unit)
        for name, unit in DURATION_FIELDS.items():
            if document.get(name) is not None:
                return arrival_ns + duration_ns(name, document[name], unit)
        return None

    def _place(self, row: TextRow, end_ns: int | None) -> None:
        """The turn of a row in its session, and the pause before it where the turn before has an end."""
        if row.session_id is None:
            return
        turn, before_ns = self._sessions.get(row.session_id, (0, None))
        row.turn = turn
        # A request that came before the end of another is no answer to it.
        if before_ns is not None and before_ns <= row.arrival_ns:
            row.think_time_ns = row.arrival_ns - before_ns
        self._sessions[row.session_id] = (turn + 1, end_ns)


def _request(document: dict[str, Any]) -> dict[str, Any]:
    """The body of the request: of its own, in a wrapping, or the document itself."""
    for name in REQUEST_FIELDS:
        inner = document.get(name)
        if isinstance(inner, dict):
            return inner["body"] if isinstance(inner.get("body"), dict) else inner
    return document


def _response(document: dict[str, Any]) -> dict[str, Any]:
    for name in ("response", "response_body"):
        inner = document.get(name)
        if isinstance(inner, dict):
            return inner["body"] if isinstance(inner.get("body"), dict) else inner
        if isinstance(inner, str):
            return {"choices": [{"message": {"content": inner}}]}
    return document if "choices" in document else {}


def _answer(response: dict[str, Any]) -> dict[str, Any] | None:
    """The message of the answer; None where the log has none. Raises BadValue."""
    choices = response.get("choices", response.get("output"))
    if choices is None or choices == []:
        return None
    first = choices[0] if isinstance(choices, list) else None
    if not isinstance(first, dict):
        raise BadValue("choices", choices, "must be a list of objects")
    message = first.get("message", first)
    if not isinstance(message, dict):
        raise BadValue("message", message, "must be an object")
    if "content" not in message and "text" in message:
        return {"content": message["text"]}
    return message


def _session(document: dict[str, Any], request: dict[str, Any]) -> str | None:
    metadata = document.get("metadata", request.get("metadata"))
    for place in (document, request, metadata if isinstance(metadata, dict) else {}):
        name, value = _first(place, SESSION_FIELDS)
        if value is not None:
            return optional_text(name, value)
    return None


def _first(place: dict[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    """The first of ``names`` that has a value, and the value; else the first name and None."""
    return next(((name, place[name]) for name in names if place.get(name) is not None), (names[0], None))


def _count(usage: dict[str, Any], names: tuple[str, ...]) -> int | None:
    name, value = _first(usage, names)
    return optional_count(f"usage.{name}", value, MAX_TOKENS)
