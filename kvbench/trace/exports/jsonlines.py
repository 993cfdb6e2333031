"""Mooncake's JSON lines, and those that AIPerf takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.errors import TraceError
from kvbench.trace.exports import TraceExport, id_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from kvbench.trace.reader import Trace

NS_PER_MS = 1_000_000
MAX_FRACTION_NS = 2**51
"""Up to here a fraction of milliseconds is read as the nanosecond that was written."""
BLOCK_TOKENS = 512
"""What readers of these files take for granted."""


class _Row(msgspec.Struct, omit_defaults=True):
    timestamp: int | float
    input_length: int
    output_length: int | None = None
    hash_ids: list[int] | None = None
    session_id: str | None = None
    delay: int | float | None = None
    request_id: str | None = None
    priority: int | None = None
    output_token_ids: list[int] | None = None


class MooncakeExport(TraceExport):
    """One request a line, ids exact; the extras of Dynamo where the trace has them."""

    carries = frozenset(
        {
            *("arrival_ns", "input_tokens", "output_tokens", "block_ids", "original_ids", "session_id", "turn"),
            *("think_time_ns", "request_id", "priority", "output_token_ids"),
        }
    )

    def check(self, trace: Trace) -> list[str]:
        facts = trace.facts
        if trace.ids == "token_ids":
            raise TraceError(f"{trace.name}: has token ids, and Mooncake has ids of blocks only")
        if trace.ids is None:
            return []
        if facts.tail_rule != "ceil":
            raise TraceError(f"{trace.name}: has no ids for partial last blocks, and readers of Mooncake want one")
        if facts.id_kind != "prefix":
            raise TraceError(f"{trace.name}: its ids stand for contents of blocks, and Mooncake's for whole prefixes")
        if facts.id_scope == "session":
            raise TraceError(f"{trace.name}: its ids mean something in their session only, and Mooncake's everywhere")
        if facts.block_tokens == BLOCK_TOKENS:
            return []
        return [
            f"the file does not say that a block has {facts.block_tokens:,} tokens: read it with "
            f"--block-tokens {facts.block_tokens} or its like, for the default of readers is {BLOCK_TOKENS}"
        ]

    def write(self, trace: Trace, batches: Iterator[pa.RecordBatch], path: Path) -> None:
        encoder = msgspec.json.Encoder()
        turns = _Turns(trace.name)
        done = 0
        with path.open("wb") as file:
            for batch in batches:
                rows = []
                for at, row in enumerate(_values(batch, trace), done + 1):
                    turns.check(row, at)
                    rows.append(self._row(row, f"{trace.name}, row {at}"))
                done += len(rows)
                file.write(encoder.encode_lines(rows))

    def _row(self, row: dict[str, Any], where: str) -> _Row:
        return _Row(
            _milliseconds(row["arrival_ns"], "arrival_ns", where),
            row["input_tokens"],
            row.get("output_tokens"),
            row.get("ids"),
            row.get("session_id"),
            None if row.get("think_time_ns") is None else _milliseconds(row["think_time_ns"], "think_time_ns", where),
            row.get("request_id"),
            row.get("priority"),
            row.get("output_token_ids"),
        )


class AiperfExport(MooncakeExport):
    """The fields that AIPerf's reader takes, each row a request of its own at its own time.

    Sessions are left out: of rows with one session AIPerf builds prompts that hold the prompts before, and
    rows of a trace hold them already.
    """

    carries = frozenset({"arrival_ns", "input_tokens", "output_tokens", "block_ids", "original_ids"})

    def _row(self, row: dict[str, Any], where: str) -> _Row:
        arrival = _milliseconds(row["arrival_ns"], "arrival_ns", where)
        return _Row(arrival, row["input_tokens"], row.get("output_tokens"), row.get("ids"))


class _Turns:
    """Whether the turns of a trace are those that a reader counts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next: dict[str, int] = {}

    def check(self, row: dict[str, Any], at: int) -> None:
        session, turn = row.get("session_id"), row.get("turn")
        if turn is None:
            return
        wanted = self._next.get(session, 0) if session is not None else None
        if turn != wanted:
            rule = "readers of Mooncake count the rows of a session from 0, and would have another"
            raise TraceError.at(self._name, at, "turn", turn, f"{rule} ({wanted})")
        self._next[str(session)] = turn + 1


def _values(batch: pa.RecordBatch, trace: Trace) -> Iterator[dict[str, Any]]:
    """The rows of ``batch``, the ids to export as ``ids``."""
    ids = id_names(trace)
    lists: list[Any] = [None] * batch.num_rows if ids is None else batch.column(ids).to_pylist()
    others = batch.drop_columns([name for name in ("block_ids", "original_ids") if name in batch.schema.names])
    for row, values in zip(others.to_pylist(), lists, strict=True):
        row["ids"] = values
        yield row


def _milliseconds(nanoseconds: int, column: str, where: str) -> int | float:
    whole, rest = divmod(nanoseconds, NS_PER_MS)
    if rest == 0:
        return whole
    if nanoseconds > MAX_FRACTION_NS:
        raise TraceError(
            f"{where}, {column} = {nanoseconds}: milliseconds with a fraction cannot hold it exactly; "
            "shift the trace's origin"
        )
    return nanoseconds / NS_PER_MS
