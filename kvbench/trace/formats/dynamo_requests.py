"""Dynamo's request trace (``DYN_REQUEST_TRACE``, schema ``dynamo.request.trace.v1``), JSONL.

A request is a record ``request_end``, bare or as the ``event`` of another object, written when its answer has ended:
``request_received_ms`` or the time of the record less ``total_time_ms`` (Unix time, ms), ``output_tokens``, the
``model`` where it is known, the session in ``agent_context``, and in ``replay`` the tokens of the prompt and a
rolling hash for each block of ``trace_block_size`` tokens, the partial last block included. The hashes have no
salt, so those of all files of one block size are alike. Records of tools and of texts are no requests.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.fields import (
    BadValue,
    BatchMaker,
    decoded,
    id_array,
    nanoseconds,
    optional_whole,
    whole,
)
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

SCHEMA = "dynamo.request.trace.v1"
REQUEST = "request_end"
NS_PER_MS = 1_000_000


class _Replay(msgspec.Struct):
    trace_block_size: int
    input_length: int
    input_sequence_hashes: list[int]


class _Request(msgspec.Struct):
    request_id: str | None = None
    model: str | None = None
    output_tokens: int | None = None
    request_received_ms: int | float | None = None
    total_time_ms: int | float | None = None
    replay: _Replay | None = None


class _Session(msgspec.Struct):
    session_id: str | None = None


class _Record(msgspec.Struct):
    schema: str | None = None
    event_type: str | None = None
    event_time_unix_ms: int | float | None = None
    agent_context: _Session | None = None
    request: _Request | None = None


class _Line(_Record):
    event: _Record | None = None


class DynamoRequestsFormat(TraceFormat):
    """See the module."""

    absolute_times = True

    def __init__(self) -> None:
        self._block_tokens: int | None = None
        self._sessions: dict[str, tuple[int, int]] = {}

    def sniff(self, head: bytes, name: str) -> bool:
        return head.lstrip().startswith(b"{") and SCHEMA.encode() in head.lstrip().split(b"\n")[0]

    def facts(self) -> TraceFacts:
        return TraceFacts(self._block_tokens, id_scope="global", source_format="dynamo-requests")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        decoder = msgspec.json.Decoder(_Line)
        batch = BatchMaker(
            "arrival_ns", "input_tokens", "output_tokens", "block_ids", "request_id", "session_id", "turn",
            "think_time_ns", "model",
        )  # fmt: skip
        others: Counter[str] = Counter()
        for number, line in lines:
            try:
                found = decoded(decoder, line)
                record = found if found.event is None else found.event
                if _is_request(record):
                    self._add(batch, number, record)
                else:
                    others[str(record.event_type)] += 1
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
            if batch.is_full:
                yield from batch.flush()
        yield from batch.flush()
        if others:
            counts = ", ".join(f"{name} {count:,}" for name, count in sorted(others.items()))
            log.notes.append(f"{lines.name}: records that are no requests are not used: {counts}")

    def _add(self, batch: BatchMaker, number: int, record: _Record) -> None:
        request = record.request
        if request is None or request.replay is None:
            raise BadValue("request.replay", None, "is missing: the prompt's length and hashes are in it")
        replay = request.replay
        self._check_block_size(whole("request.replay.trace_block_size", replay.trace_block_size, low=1))
        arrival_ns, end_ns = _times(record, request)
        values = {
            "input_tokens": whole("request.replay.input_length", replay.input_length),
            "output_tokens": optional_whole("request.output_tokens", request.output_tokens),
            "block_ids": id_array("request.replay.input_sequence_hashes", replay.input_sequence_hashes),
            "request_id": request.request_id,
            "model": request.model,
        }
        session = None if record.agent_context is None else record.agent_context.session_id
        turn, pause_ns = self._place(session, arrival_ns, end_ns)
        batch.add(number, arrival_ns=arrival_ns, session_id=session, turn=turn, think_time_ns=pause_ns, **values)

    def _check_block_size(self, size: int) -> None:
        if self._block_tokens is None:
            self._block_tokens = size
        if size != self._block_tokens:
            rule = f"the rows before have {self._block_tokens}, and a trace has one; import each size by itself"
            raise BadValue("request.replay.trace_block_size", size, rule)

    def _place(self, session: str | None, arrival_ns: int, end_ns: int) -> tuple[int | None, int | None]:
        """The turn of a request in its session, and the pause since the one before, whose end it came after."""
        if session is None:
            return None, None
        turn, before_ns = self._sessions.get(session, (0, None))
        self._sessions[session] = (turn + 1, end_ns)
        return turn, None if before_ns is None or before_ns > arrival_ns else arrival_ns - before_ns


def _is_request(record: _Record) -> bool:
    """Whether a record is one of a request. Raises BadValue for one of another schema."""
    if record.schema != SCHEMA:
        raise BadValue("schema", record.schema, f"must be {SCHEMA}")
    return record.event_type == REQUEST


def _times(record: _Record, request: _Request) -> tuple[int, int]:
    """When a request arrived and when its answer ended, in ns since 1970; either from the other one and how long it
    took, and at worst equal."""
    took = nanoseconds("request.total_time_ms", request.total_time_ms or 0, NS_PER_MS)
    arrival, end = request.request_received_ms, record.event_time_unix_ms
    if arrival is not None:
        arrival_ns = nanoseconds("request.request_received_ms", arrival, NS_PER_MS)
        if request.total_time_ms is None and end is not None:
            return arrival_ns, max(arrival_ns, nanoseconds("event_time_unix_ms", end, NS_PER_MS))
        return arrival_ns, arrival_ns + took
    if end is None:
        raise BadValue("request.request_received_ms", None, "is missing, and so is event_time_unix_ms")
    end_ns = nanoseconds("event_time_unix_ms", end, NS_PER_MS)
    return end_ns - took, end_ns
