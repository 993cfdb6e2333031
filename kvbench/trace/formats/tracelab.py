"""TraceLab: rounds of coding-agent sessions, as its replay CSV or as its round JSONL. Counts, no ids.

CSV: ``session_id`` (or ``id``), ``prefix_len``, ``input_len``, ``output_len`` (tokens), and mostly
``round_idx``, ``arrival_time`` (ms, of the session) and ``tool_wait_after_ms``, in any order. JSONL:
the same counts as measured by the provider, and the times of what happened in a round.

A prompt is ``prefix_len`` tokens of the session's context (all earlier prompts and answers) and
``input_len`` new ones. That is enough to make ids of blocks of a stated size: see
:mod:`kvbench.trace.formats.madeblocks`.
"""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.fields import BadValue, BatchMaker, decoded, json_keys, nanoseconds, say_once, whole
from kvbench.trace.formats.madeblocks import Context, IdSource
from kvbench.trace.schema import TraceFacts
from kvbench.units import MAX_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

NS_PER_MS = 1_000_000
REQUIRED_COLUMNS = ("session_id", "prefix_len", "input_len", "output_len")
COLUMNS = (*REQUIRED_COLUMNS, "round_idx", "arrival_time", "tool_wait_after_ms")
INPUT_EVENTS = ("user_message", "tool_result")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Round(NamedTuple):
    """One row of either form; ``wait_after_ns`` and ``end_ns`` say what the next round waits for."""

    session: str
    number: int | None
    prefix_tokens: int
    new_tokens: int
    output_tokens: int
    arrival_ns: int | None
    wait_after_ns: int | None
    end_ns: int | None = None
    name: str | None = None
    model: str | None = None
    tenant: str | None = None
    type: str | None = None


class _Event(msgspec.Struct):
    event_type: str
    timestamp: str


class _Line(msgspec.Struct):
    session_id: str
    round_index: int
    input_tokens_total: int
    prefix_tokens: int
    newly_append_tokens: int
    output_tokens: int
    timing_events: list[_Event]
    round_id: str | None = None
    model: str | None = None
    project: str | None = None
    first_input_event_type: str | None = None


class TraceLabFormat(TraceFormat):
    """See the module. ``block_tokens``: size of the blocks that are made."""

    def __init__(self, block_tokens: int = 16) -> None:
        self._block_tokens = block_tokens
        self._ids = IdSource()
        self._sessions: dict[str, _Session] = {}
        self._tables = 0

    def sniff(self, head: bytes, name: str) -> bool:
        if {"round_index", "prefix_tokens", "newly_append_tokens"} <= json_keys(head):
            return True
        first = head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
        return {"prefix_len", "input_len", "output_len"} <= {name.strip() for name in first.split(",")}

    def facts(self) -> TraceFacts:
        return TraceFacts(
            block_tokens=self._block_tokens, tail_rule="floor", id_scope="session", source_format="tracelab"
        )

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        say_once(
            log, f"ids of blocks of {self._block_tokens:,} tokens are made from how prompts continue their session"
        )
        batch = BatchMaker(
            "arrival_ns",
            "input_tokens",
            "output_tokens",
            "block_ids",
            "output_block_ids",
            "request_id",
            "session_id",
            "turn",
            "think_time_ns",
            "model",
            "tenant",
            "type",
        )
        parse: Callable[[bytes], _Round] | None = None
        for number, line in lines:
            try:
                if parse is not None:
                    self._add(batch, number, parse(line), log)
                elif line.startswith(b"{"):
                    parse = _json_parser(log)
                    self._add(batch, number, parse(line), log)
                else:
                    parse = _csv_parser(line, lines.name, log, self._prefix())
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
            if batch.is_full:
                yield from batch.flush()
        yield from batch.flush()

    def _prefix(self) -> str:
        """What tells the sessions of a table from those of the tables before; they are numbered anew in each."""
        self._tables += 1
        return f"{self._tables}/" if self._tables > 1 else ""

    def _add(self, batch: BatchMaker, number: int, row: _Round, log: ReadLog) -> None:
        session = self._sessions.get(row.session) or _Session(self._ids, self._block_tokens)
        session.add(batch, number, row, log)
        self._sessions[row.session] = session


class _Session:
    """What is known of a session: its context, and when the last round came and ended."""

    def __init__(self, ids: IdSource, block_tokens: int) -> None:
        self._context = Context(ids, block_tokens)
        self._last: _Round | None = None
        self._arrival_ns = 0
        self._turn = 0

    def add(self, batch: BatchMaker, number: int, row: _Round, log: ReadLog) -> None:
        """Add a round to ``batch``. Raises BadValue, and then the session is as before."""
        arrival_ns, think_ns = self._times(row)
        prompt, answer = self._context.extended(row.prefix_tokens, row.new_tokens, row.output_tokens)
        batch.add(
            number,
            arrival_ns=arrival_ns,
            input_tokens=row.prefix_tokens + row.new_tokens,
            output_tokens=row.output_tokens,
            block_ids=prompt,
            output_block_ids=answer,
            request_id=row.name,
            session_id=row.session,
            turn=self._turn,
            think_time_ns=think_ns,
            model=row.model,
            tenant=row.tenant,
            type=row.type,
        )
        log.estimated_arrivals += self._last is not None and row.end_ns is None
        self._last, self._arrival_ns = row, arrival_ns
        self._turn += 1

    def _times(self, row: _Round) -> tuple[int, int | None]:
        """Arrival, and the pause since the round before."""
        last = self._last
        if last is None:
            return row.arrival_ns or 0, None
        if last.number is not None and row.number is not None and row.number <= last.number:
            raise BadValue("round", row.number, f"comes after round {last.number} of the session; rounds go up")
        if row.end_ns is not None and row.arrival_ns is not None:
            end_ns = last.end_ns or 0
            return row.arrival_ns, max(row.arrival_ns - end_ns, 0)
        if row.arrival_ns != last.arrival_ns:
            raise BadValue("arrival_time", row.arrival_ns, "is not that of the session's first round, in nanoseconds")
        arrival_ns = self._arrival_ns + (last.wait_after_ns or 0)
        if arrival_ns > MAX_NS:
            raise BadValue("tool_wait_after_ms", last.wait_after_ns, "puts the arrival too far off")
        return arrival_ns, last.wait_after_ns


def _json_parser(log: ReadLog) -> Callable[[bytes], _Round]:
    decoder = msgspec.json.Decoder(_Line)
    log.any_origin = True

    def parse(text: bytes) -> _Round:
        line = decoded(decoder, text)
        prefix, new = whole("prefix_tokens", line.prefix_tokens), whole("newly_append_tokens", line.newly_append_tokens)
        if line.input_tokens_total != prefix + new:
            raise BadValue(
                "input_tokens_total", line.input_tokens_total, f"is not prefix and new tokens, {prefix + new}"
            )
        start_ns, end_ns = _span(line.timing_events)
        return _Round(
            line.session_id,
            whole("round_index", line.round_index),
            prefix,
            new,
            whole("output_tokens", line.output_tokens),
            start_ns,
            None,
            end_ns,
            line.round_id,
            line.model,
            line.project,
            line.first_input_event_type,
        )

    return parse


def _span(events: list[_Event]) -> tuple[int, int]:
    """When the last input of a round was there, and when the last of the answer was."""
    times = [(event.event_type in INPUT_EVENTS, _epoch_ns(event.timestamp)) for event in events]
    if not times:
        raise BadValue("timing_events", [], "is empty, so that nothing says when the round was")
    start_ns = max((at for is_input, at in times if is_input), default=min(at for _, at in times))
    return start_ns, max(start_ns, *(at for _, at in times))


def _epoch_ns(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        nanoseconds = (moment - EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError):
        raise BadValue("timestamp", text, "is not a date and time as ISO 8601 writes it") from None
    if not 0 <= nanoseconds <= MAX_NS:
        raise BadValue("timestamp", text, "is not between 1970 and 2262")
    return nanoseconds


def _csv_parser(header: bytes, where: str, log: ReadLog, prefix: str) -> Callable[[bytes], _Round]:
    names = ["session_id" if name == "id" else name for name in map(str.strip, _cells(header))]
    missing = [name for name in REQUIRED_COLUMNS if name not in names]
    if missing:
        raise TraceError(f"{where}: column {missing[0]} is missing; TraceLab's are {', '.join(COLUMNS)}")
    others = [name for name in names if name not in COLUMNS]

    def parse(text: bytes) -> _Round:
        cells = _cells(text)
        if len(cells) != len(names):
            raise BadValue(
                "line", text.decode("utf-8", "replace"), f"has {len(cells)} cells; the header has {len(names)}"
            )
        row = dict(zip(names, cells, strict=True))
        log.ignored_fields.update(others)
        if not row["session_id"]:
            raise BadValue("session_id", "", "is empty")
        return _Round(
            prefix + row["session_id"],
            _count(row, "round_idx") if row.get("round_idx") else None,
            _count(row, "prefix_len"),
            _count(row, "input_len"),
            _count(row, "output_len"),
            _milliseconds(row, "arrival_time"),
            _milliseconds(row, "tool_wait_after_ms"),
        )

    return parse


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode("utf-8")], strict=True), [])
    except (csv.Error, UnicodeDecodeError, StopIteration) as error:
        raise BadValue("line", line[:1000].decode("utf-8", "replace"), f"is no line of a CSV file: {error}") from None


def _count(row: dict[str, str], name: str) -> int:
    text = row[name].strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadValue(name, row[name], "must be a whole number, not negative")
    return whole(name, int(text))


def _milliseconds(row: dict[str, str], name: str) -> int | None:
    text = row.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadValue(name, text, "must be a number of milliseconds")
    return nanoseconds(name, value, NS_PER_MS)
