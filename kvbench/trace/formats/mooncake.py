"""Mooncake JSONL, and what AIPerf and Dynamo add to it.

One request a line: ``timestamp`` (ms), ``input_length``, ``output_length`` (tokens), ``hash_ids``
(one prefix hash a block, the partial last block included). A later turn of a session may carry
``delay`` (ms after the previous turn) instead of a timestamp.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.trace.formats import ROW_COLUMN, ReadLog, TraceFormat
from kvbench.trace.formats.fields import json_keys
from kvbench.trace.formats.mooncake_plain import plain_batch
from kvbench.trace.formats.text import numbered
from kvbench.trace.schema import TraceFacts, make_schema
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbench.trace.formats.text import Lines

NS_PER_MS = 1_000_000
BLOCK_TOKENS = 512
"""The files do not say; this is what Mooncake uses."""
ALIASES = {
    "timestamp": "created_time",
    "input_length": "input_tokens",
    "output_length": "output_tokens",
    "delay": "delay_ms",
}
TEXT_FIELDS = ("text_input", "messages", "payload")
IGNORED_FIELDS = (
    "tools",
    "extra",
    "message_mode",
    "strict_priority",
    "policy_class",
    "wait_for",
    "branches",
    "prefix_reset",
    "tool_wait_ms",
    "tool_events",
    "type",
)
OTHER_FORMATS_KEYS = {"chat_id", "block_size", "request", "response", "choices", "spans", "conversation", "input"}
MAX_ID = 2**64 - 1
MAX_NS = 2**63 - 1
LIMITS = {"priority": (-(2**31), 2**31 - 1), "input_length": (0, MAX_TOKENS), "output_length": (0, MAX_TOKENS)}

_SCHEMA = make_schema(
    {
        "arrival_ns",
        "input_tokens",
        "output_tokens",
        "block_ids",
        "request_id",
        "session_id",
        "turn",
        "think_time_ns",
        "priority",
        "output_token_ids",
    }
).append(pa.field(ROW_COLUMN, pa.uint64()))

_Milliseconds = int | float | None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: _Milliseconds = None
    created_time: _Milliseconds = None
    input_length: int | None = None
    input_tokens: int | None = None
    output_length: int | None = None
    output_tokens: int | None = None
    hash_ids: list[int] | None = None
    session_id: int | str | None = None
    delay: _Milliseconds = None
    delay_ms: _Milliseconds = None
    request_id: int | str | None = None
    priority: int | None = None
    output_token_ids: list[int] | None = None
    text_input: Any = None
    messages: Any = None
    payload: Any = None
    tools: Any = None
    extra: Any = None
    message_mode: Any = None
    strict_priority: Any = None
    policy_class: Any = None
    wait_for: Any = None
    branches: Any = None
    prefix_reset: Any = None
    tool_wait_ms: Any = None
    tool_events: Any = None
    type: Any = None


class _Bad(Exception):
    """A value of the line breaks a rule: field, value, rule."""


class MooncakeFormat(TraceFormat):
    """See the module."""

    def sniff(self, head: bytes, name: str) -> bool:
        first = next((line for line in head.splitlines() if line.strip()), b"")
        try:
            row = msgspec.json.decode(first)
        except RecursionError:
            return False
        except msgspec.DecodeError:
            # The first line may be longer than the head.
            keys = json_keys(head)
            return bool({"timestamp", "hash_ids", "input_length"} & keys) and not OTHER_FORMATS_KEYS & keys
        # Of a field that nobody knows, reading says more than guessing can.
        if not isinstance(row, dict) or OTHER_FORMATS_KEYS & set(row):
            return False
        return bool({"input_length", "input_tokens", *TEXT_FIELDS} & set(row)) and bool(
            {"timestamp", "created_time"} & set(row)
        )

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=BLOCK_TOKENS, source_format="mooncake")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        decoder = msgspec.json.Decoder(_Line)
        sessions: _Sessions = log.carried.setdefault("sessions", _Sessions(log))
        for first, chunk in lines.chunks():
            batch = plain_batch(chunk, first)
            if batch is not None:
                yield batch
                continue
            rows: list[tuple[Any, ...]] = []
            for number, line in numbered(first, chunk):
                try:
                    rows.append((*sessions.row(_decode(decoder, line, log)), number))
                except _Bad as bad:
                    log.refuse(TraceError.at(lines.name, number, *bad.args))
            if rows:
                yield _batch(rows)


class _Sessions:
    """Turns lines into rows; knows the last arrival and the number of turns of each session."""

    def __init__(self, log: ReadLog) -> None:
        self._log = log
        self._last: dict[str, tuple[int, int]] = {}

    def row(self, line: _Line) -> tuple[Any, ...]:
        """The values of one row, in the order of the batch's columns."""
        tokens = _required_length(line)
        output_tokens = _aliased(line, "output_length")
        _check_limits("output_length", output_tokens)
        _check_limits("priority", line.priority)
        _check_ids("hash_ids", line.hash_ids, MAX_ID)
        _check_ids("output_token_ids", line.output_token_ids, MAX_TOKENS)
        think_ns = _nanoseconds("delay", _aliased(line, "delay"))
        session = None if line.session_id is None else str(line.session_id)
        previous = None if session is None else self._last.get(session)
        arrival_ns = _nanoseconds("timestamp", _aliased(line, "timestamp"))
        if arrival_ns is None:
            arrival_ns = _estimated_arrival(previous, think_ns)
            self._log.estimated_arrivals += 1
        turn = None
        if session is not None:
            turn = 0 if previous is None else previous[1] + 1
            self._last[session] = (arrival_ns, turn)
        request = None if line.request_id is None else str(line.request_id)
        return (
            arrival_ns,
            tokens,
            output_tokens,
            line.hash_ids,
            request,
            session,
            turn,
            think_ns,
            line.priority,
            line.output_token_ids,
        )


def _estimated_arrival(previous: tuple[int, int] | None, think_ns: int | None) -> int:
    if previous is None:
        raise _Bad("timestamp", None, "is missing, and there is no earlier row of the session to count from")
    if think_ns is None:
        raise _Bad("timestamp", None, "is missing, and so is delay, which a later turn may have instead")
    arrival_ns = previous[0] + think_ns
    if arrival_ns > MAX_NS:
        raise _Bad("delay", think_ns, "puts the arrival too far off; times are counted in 64-bit nanoseconds")
    return arrival_ns


def _decode(decoder: msgspec.json.Decoder[_Line], line: bytes, log: ReadLog) -> _Line:
    try:
        row = decoder.decode(line)
    except msgspec.ValidationError as error:
        raise _explained(line, str(error)) from None
    except RecursionError:
        raise _Bad("line", line.decode("utf-8", "replace"), "is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = line.decode("utf-8", "replace")
        if re.search(r"\b(NaN|Infinity)\b", text):
            raise _Bad("line", text, "NaN and Infinity are no numbers of a trace (nor of JSON)") from None
        raise _Bad("line", text, f"is not valid JSON: {error}") from None
    for name in IGNORED_FIELDS:
        if getattr(row, name) is not None:
            log.ignored_fields[name] += 1
    return row


def _explained(line: bytes, said: str) -> _Bad:
    """What a line of valid JSON has wrong, with the value that is wrong."""
    if unknown := re.search(r"unknown field `(.*)`", said):
        known = ", ".join(_Line.__struct_fields__)
        return _Bad("field", unknown.group(1), f"is unknown; known are {known}")
    rule = said.split(" - at ")[0]
    rule = rule[0].lower() + rule[1:]
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return _Bad("line", line.decode("utf-8", "replace"), f"cannot be read: {rule}")
    path = re.search(r"at `\$\.(\w+)", said)
    if path is None:
        return _Bad("line", value, "must be a JSON object, one request")
    name = path.group(1)
    return _Bad(name, value.get(name), rule)


def _aliased(line: _Line, name: str) -> Any:
    value, alias = getattr(line, name), getattr(line, ALIASES[name])
    if value is not None and alias is not None:
        raise _Bad(ALIASES[name], alias, f"is another name of {name}, which is there too")
    return alias if value is None else value


def _required_length(line: _Line) -> int:
    tokens = _aliased(line, "input_length")
    if tokens is not None:
        _check_limits("input_length", tokens)
        return int(tokens)
    for name in TEXT_FIELDS:
        if getattr(line, name) is not None:
            rule = f"the row has {name} instead; text has no length in tokens until it is tokenised, so give the length"
            raise _Bad("input_length", None, rule)
    raise _Bad("input_length", None, "is missing")


def _check_limits(name: str, value: int | None) -> None:
    if value is None:
        return
    low, high = LIMITS[name]
    if not low <= value <= high:
        raise _Bad(name, value, f"must be from {low} to {high}")


def _check_ids(name: str, ids: list[int] | None, high: int) -> None:
    if ids and (min(ids) < 0 or max(ids) > high):
        value = next(value for value in ids if not 0 <= value <= high)
        raise _Bad(name, value, f"must be from 0 to {high}")


def _nanoseconds(name: str, milliseconds: float | None) -> int | None:
    """Whole nanoseconds from milliseconds; exact for integers, rounded for fractions."""
    if milliseconds is None:
        return None
    if isinstance(milliseconds, float) and not math.isfinite(milliseconds):
        raise _Bad(name, milliseconds, "must be a finite number of milliseconds")
    if milliseconds < 0:
        raise _Bad(name, milliseconds, "must not be negative")
    nanoseconds = round(milliseconds * NS_PER_MS)
    if nanoseconds > MAX_NS:
        raise _Bad(name, milliseconds, "is too large; times are counted in 64-bit nanoseconds")
    return nanoseconds


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
