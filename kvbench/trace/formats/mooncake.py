"""Mooncake JSONL, and what AIPerf and Dynamo add to it.

One request a line: ``timestamp`` (ms), ``input_length``, ``output_length`` (tokens), ``hash_ids``
(one prefix hash a block, the partial last block included). A later turn of a session may carry
``delay`` (ms after the previous turn) instead of a timestamp. A row of an agentic trace may instead
wait for other requests (``wait_for``) and for tools (``tool_wait_ms``); it then comes after the last of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.trace.formats import ROW_COLUMN, ReadLog, TraceFormat
from kvbench.trace.formats.fields import MAX_ID, BadValue, json_keys, optional_ns, optional_whole
from kvbench.trace.formats.mooncake_line import TEXT_FIELDS, Line, aliased, check_ids, decode_line, required_length
from kvbench.trace.formats.mooncake_plain import PlainReader
from kvbench.trace.formats.text import numbered
from kvbench.trace.formats.texttokens import TokenRule, make_rule
from kvbench.trace.recut import MAX_IDS
from kvbench.trace.schema import TraceFacts, make_schema
from kvbench.units import MAX_NS, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvbench.trace.formats.text import Lines

NS_PER_MS = 1_000_000
MAX_PRIORITY = 2**31 - 1
BLOCK_TOKENS = 512
"""The files do not say; this is what Mooncake uses."""
OTHER_FORMATS_KEYS = {"chat_id", "block_size", "request", "response", "choices", "spans", "conversation", "input"}
REMEMBERED_REQUESTS = 65_536
"""Of requests before the first row that waits for one, so many can be waited for."""
UNLINKED = (
    "rows wait for other requests than the turn before in their session (wait_for); a trace has no such links, so "
    "these rows come at their time, whenever the others end"
)


class Row(NamedTuple):
    """The values of one row, as the columns of a batch are called."""

    arrival_ns: int
    input_tokens: int
    output_tokens: int | None
    block_ids: Any
    token_ids: Any
    request_id: str | None
    session_id: str | None
    turn: int | None
    think_time_ns: int | None
    priority: int | None
    output_token_ids: list[int] | None


_SCHEMA = make_schema(set(Row._fields)).append(pa.field(ROW_COLUMN, pa.uint64()))


class MooncakeFormat(TraceFormat):
    """See the module. ``tokenizer``, ``bytes_per_token``, ``characters_per_token`` are the rule for ``text_input``
    where one is given (:mod:`kvbench.trace.formats.texttokens`)."""

    _whole_prompts = True
    """Whether the ids of a row are those of its whole prompt."""

    def __init__(
        self, tokenizer: str | None = None, bytes_per_token: int | None = None, characters_per_token: int | None = None
    ) -> None:
        given = (tokenizer, bytes_per_token, characters_per_token)
        self._rule = None if given == (None, None, None) else make_rule(*given)

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
        decoder = msgspec.json.Decoder(Line)
        sessions = self._sessions(log)
        plain = PlainReader(sessions) if self._whole_prompts else None
        for first, chunk in lines.chunks():
            batch = None if plain is None else plain.batch(chunk, first)
            if batch is not None:
                yield batch
                continue
            rows: list[tuple[Any, ...]] = []
            ids = 0
            for number, line in numbered(first, chunk):
                try:
                    row = sessions.row(decode_line(decoder, line, log), f"{lines.name}, row {number}")
                except BadValue as bad:
                    log.refuse(TraceError.at(lines.name, number, *bad.args))
                    continue
                rows.append((*row, number))
                ids += len(row.block_ids or ())
                if ids >= MAX_IDS:
                    yield _batch(rows)
                    rows, ids = [], 0
            if rows:
                yield _batch(rows)

    def _sessions(self, log: ReadLog) -> Sessions:
        """What is known of the rows before, in this member and those before it."""
        if self._rule is not None and self._rule.sentence not in log.notes:
            log.notes.append(self._rule.sentence)
        sessions: Sessions = log.carried.setdefault("sessions", Sessions(log, self._rule))
        return sessions


class Followed(NamedTuple):
    """Of rows that follow one another: when each arrives, and its turn (None without a session)."""

    arrivals: list[int]
    turns: list[int | None]


class Sessions:
    """Turns lines into rows; knows the last arrival, request and number of turns of each session."""

    def __init__(self, log: ReadLog, rule: TokenRule | None = None) -> None:
        self._log = log
        self._rule = rule
        self._last: dict[str, tuple[int, int, str | None]] = {}
        self._requests: dict[str, int] = {}
        self._agentic = False

    def row(self, line: Line, where: str) -> Row:
        """The values of one row. Raises BadValue."""
        tokens, token_ids = self._prompt(line)
        output_tokens = aliased(line, "output_length")
        optional_whole("output_length", output_tokens)
        optional_whole("priority", line.priority, MAX_PRIORITY, -MAX_PRIORITY - 1)
        check_ids("hash_ids", line.hash_ids, MAX_ID)
        check_ids("output_token_ids", line.output_token_ids, MAX_TOKENS)
        session = None if line.session_id is None else str(line.session_id)
        request = None if line.request_id is None else str(line.request_id)
        previous = None if session is None else self._last.get(session)
        think_ns = _pause(line)
        arrival_ns = self._arrival(line, previous, think_ns)
        turn = None
        if session is not None:
            turn = 0 if previous is None else previous[1] + 1
            self._last[session] = (arrival_ns, turn, request)
        if request is not None:
            self._remember(request, arrival_ns)
        return Row(
            arrival_ns,
            tokens,
            output_tokens,
            line.hash_ids,
            token_ids,
            request,
            session,
            turn,
            think_ns,
            line.priority,
            line.output_token_ids,
        )

    def follow(
        self, sessions: Sequence[str | None], requests: Sequence[str | None], said: list[int], delays: list[int]
    ) -> Followed | None:
        """As :meth:`row`, of many rows that wait for no others; None, and nothing is taken in, if one is bad.

        Of each row its session, its name, when it says it arrives, and its delay (-1: it does not say).
        """
        last: dict[str, tuple[int, int, str | None]] = {}
        turns: list[int | None] = []
        arrivals = []
        for session, request, arrival_ns, delay_ns in zip(sessions, requests, said, delays, strict=True):
            previous = None if session is None else last.get(session) or self._last.get(session)
            if arrival_ns < 0:
                if previous is None or delay_ns < 0 or previous[0] + delay_ns > MAX_NS:
                    return None
                arrival_ns = previous[0] + delay_ns
            turn = None
            if session is not None:
                turn = 0 if previous is None else previous[1] + 1
                last[session] = (arrival_ns, turn, request)
            turns.append(turn)
            arrivals.append(arrival_ns)
        self._last |= last
        self._log.estimated_arrivals += sum(arrival_ns < 0 for arrival_ns in said)
        for request, arrival_ns in zip(requests, arrivals, strict=True):
            if request is not None:
                self._remember(request, arrival_ns)
        return Followed(arrivals, turns)

    def _remember(self, request: str, arrival_ns: int) -> None:
        self._requests[request] = arrival_ns
        if not self._agentic and len(self._requests) > REMEMBERED_REQUESTS:
            del self._requests[next(iter(self._requests))]

    def _prompt(self, line: Line) -> tuple[int, Any]:
        """The length of the prompt, and its tokens where it is text that is tokenised."""
        if self._rule is None or not isinstance(line.text_input, str) or aliased(line, "input_length") is not None:
            return required_length(line), None
        if line.hash_ids is not None:
            raise BadValue("text_input", line.text_input, "is there beside hash_ids; a row has one of them")
        token_ids = self._rule.encode(line.text_input)
        return len(token_ids), token_ids

    def _arrival(self, line: Line, previous: tuple[int, int, str | None] | None, think_ns: int | None) -> int:
        waited = line.wait_for if isinstance(line.wait_for, list) else [line.wait_for]
        names = [str(name) for name in waited if name is not None]
        self._agentic |= line.wait_for is not None
        if names and (previous is None or names != [previous[2]]):
            self._log.ignored_fields["wait_for"] += 1
            if UNLINKED not in self._log.notes:
                self._log.notes.append(UNLINKED)
        said = optional_ns("timestamp", aliased(line, "timestamp"), NS_PER_MS, any_sign=self._log.any_origin)
        if said is not None:
            return said
        self._log.estimated_arrivals += 1
        if names:
            unknown = next((name for name in names if name not in self._requests), None)
            if unknown is not None:
                raise BadValue("wait_for", unknown, "is the request_id of no row before, and there is no timestamp")
            before = max(self._requests[name] for name in names)
        elif previous is None:
            raise BadValue("timestamp", None, "is missing, and there is no earlier row of the session to count from")
        else:
            before = previous[0]
            if think_ns is None:
                raise BadValue("timestamp", None, "is missing, and so is delay, which a later turn may have instead")
        arrival_ns = before + (think_ns or 0)
        if arrival_ns > MAX_NS:
            raise BadValue("delay", think_ns, "puts the arrival too far off; times are counted in 64-bit nanoseconds")
        return arrival_ns


def _pause(line: Line) -> int | None:
    """What passes between what a row waits for and its arrival: the delay, and what tools take."""
    delay_ns = optional_ns("delay", aliased(line, "delay"), NS_PER_MS)
    tools_ns = optional_ns("tool_wait_ms", line.tool_wait_ms, NS_PER_MS)
    if delay_ns is None or tools_ns is None:
        return delay_ns if tools_ns is None else tools_ns
    if delay_ns + tools_ns > MAX_NS:
        raise BadValue("tool_wait_ms", line.tool_wait_ms, "is too large; times are counted in 64-bit nanoseconds")
    return delay_ns + tools_ns


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
