"""Alibaba Bailian (Qwen) usage traces, JSONL, two hours a file.

One request a line: ``chat_id`` and ``parent_chat_id`` (-1: first turn) link the turns of a session,
``turn`` (from 1), ``timestamp`` (seconds from the start of the file), ``input_length`` and
``output_length`` (tokens), ``type`` and ``hash_ids``, one for each block of 16 tokens, the padded
last one included. Each file has a salt of its own, so that equal ids of two files mean nothing, and
numbers chats from 0 again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.fields import (
    BadValue,
    BatchMaker,
    decoded,
    id_array,
    json_keys,
    nanoseconds,
    optional_whole,
    whole,
)
from kvbench.trace.schema import TraceFacts
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

BLOCK_TOKENS = 16
NO_PARENT = -1


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    chat_id: int
    timestamp: float
    hash_ids: list[int]
    input_length: int
    output_length: int | None = None
    parent_chat_id: int = NO_PARENT
    turn: int | None = None
    type: str | None = None


class BailianFormat(TraceFormat):
    """See the module."""

    def __init__(self) -> None:
        self._files = 0

    def sniff(self, head: bytes, name: str) -> bool:
        return {"chat_id", "timestamp"} <= json_keys(head)

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=BLOCK_TOKENS, source_format="bailian")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        self._files += 1
        sessions = _Sessions(f"{self._files}/" if self._files > 1 else "")
        decoder = msgspec.json.Decoder(_Line)
        batch = BatchMaker(
            "arrival_ns", "input_tokens", "output_tokens", "block_ids", "request_id", "session_id", "turn", "type"
        )
        for number, line in lines:
            try:
                _add(batch, number, decoded(decoder, line), sessions)
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
            if batch.is_full:
                yield from batch.flush()
        yield from batch.flush()


class _Sessions:
    """Names sessions by their first chat, or by the earliest one that the file speaks of."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._roots: dict[int, int] = {}

    def name(self, chat: int) -> str:
        return f"{self._prefix}{chat}"

    def of(self, line: _Line) -> str:
        parent = line.parent_chat_id
        root = line.chat_id if parent == NO_PARENT else self._roots.get(parent, parent)
        self._roots[line.chat_id] = root
        return self.name(root)


def _add(batch: BatchMaker, number: int, line: _Line, sessions: _Sessions) -> None:
    turn = optional_whole("turn", line.turn)
    values = {
        "arrival_ns": nanoseconds("timestamp", line.timestamp, NS_PER_S),
        "input_tokens": whole("input_length", line.input_length),
        "output_tokens": optional_whole("output_length", line.output_length),
        "block_ids": id_array("hash_ids", line.hash_ids),
        "turn": None if turn is None else max(turn - 1, 0),
        "type": line.type,
    }
    batch.add(number, request_id=sessions.name(line.chat_id), session_id=sessions.of(line), **values)
