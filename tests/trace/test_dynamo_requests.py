"""Dynamo's request trace: records of requests, bare and wrapped, among those of tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import foreign
import pyarrow as pa
import pytest

import kvbench
from kvbench.builtin_others import kvbench_trace_formats
from kvbench.errors import TraceError
from kvbench.trace import guess_format, import_trace, open_trace

if TYPE_CHECKING:
    from pathlib import Path

S = 10**9
START_MS = 1_777_312_800_000
HASHES = [14_879_255_164_371_896_291, 274_632_075_616_497_421, 3]


def record(**changes: Any) -> dict[str, Any]:
    replay = {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": HASHES[:2]}
    request = {"request_id": "r", "request_received_ms": START_MS, "output_tokens": 16, "replay": replay}
    request |= changes.pop("request", {})
    whole = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": START_MS + 1_000}
    return whole | {"request": request} | changes


def imported(tmp_path: Path, *rows: object, **how: Any) -> tuple[list[dict[str, Any]], Any]:
    (tmp_path / "trace.jsonl").write_bytes(foreign.jsonl(*rows))
    format = foreign.make("dynamo-requests")
    report = import_trace(tmp_path / "trace.jsonl", tmp_path / "t.arrow", format=format, force=True, **how)
    return pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).to_pylist(), report


def test_a_session_has_turns_pauses_and_the_hits_of_its_prefix(tmp_path: Path) -> None:
    """The records come in the order of ends, one is wrapped, and one is of a tool between two turns."""
    session = {"agent_context": {"session_id": "s", "parent_session_id": "p"}}
    longer = {"trace_block_size": 64, "input_length": 150, "input_sequence_hashes": HASHES}
    second = record(
        request={"request_id": "b", "request_received_ms": START_MS + 3_500, "model": "m", "replay": longer},
        **session | {"event_time_unix_ms": START_MS + 5_000},
    )
    first = record(request={"model": "m", "total_time_ms": 1_000.5}, **session)
    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "tool": {"tool_call_id": "c"}}
    early = record(request={"request_id": "a", "request_received_ms": None, "total_time_ms": 2_000})
    rows, report = imported(tmp_path, first, tool, {"timestamp": 1, "event": second}, early)
    assert [(row["request_id"], row["arrival_ns"], row["turn"]) for row in rows] == [
        ("a", 0, None),
        ("r", 1 * S, 0),
        ("b", 4.5 * S, 1),
    ]
    assert [row["think_time_ns"] for row in rows] == [None, None, 2_499_500_000]
    assert [row["session_id"] for row in rows] == [None, "s", "s"]
    assert "records that are no requests are not used: tool_end 1" in report.notes[0]
    result = kvbench.replay(tmp_path / "t.arrow")
    assert result.summary["blocks"]["hit"] == 2
    assert result.manifest["trace"]["block_tokens"] == 64


def test_a_trace_with_texts_among_its_records_is_known(tmp_path: Path) -> None:
    payload = {"schema": "dynamo.request.trace.v1", "event_type": "request_payload", "request": {"messages": []}}
    (tmp_path / "trace.jsonl").write_bytes(foreign.jsonl(payload | {"request": {"model": "m", "messages": []}}))
    formats = [(spec.name, spec.load()()) for spec in kvbench_trace_formats()]
    assert guess_format(tmp_path / "trace.jsonl", formats)[0] == "dynamo-requests"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (record(schema="dynamo.request.trace.v2"), "row 2, schema = 'dynamo.request.trace.v2': must be"),
        (record(request={"replay": None}), "row 2, request.replay = None: is missing"),
        (
            record(request={"replay": {"trace_block_size": 32, "input_length": 1, "input_sequence_hashes": [1]}}),
            "trace_block_size = 32: the rows before have 64",
        ),
        (
            record(request={"replay": {"trace_block_size": 64, "input_length": 129, "input_sequence_hashes": [1]}}),
            "row 2, block_ids",
        ),
        (record(request={"request_received_ms": None}, event_time_unix_ms=None), "request_received_ms = None"),
    ],
)
def test_a_bad_record_is_told_with_its_place_or_left_out(tmp_path: Path, row: object, message: str) -> None:
    with pytest.raises(TraceError) as told:
        imported(tmp_path, record(), row)
    assert message in str(told.value)
    rows, report = imported(tmp_path, record(), row, on_error="skip")
    assert (len(rows), report.skipped) == (1, 1)
