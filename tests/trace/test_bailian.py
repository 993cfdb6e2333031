"""Bailian usage traces: what is read, and that two files share no block by accident."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import kvbench
from kvbench.errors import TraceError
from kvbench.trace import import_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.bailian import BailianFormat
from kvbench.trace.formats.text import Lines

FIRST = {
    "chat_id": 55,
    "parent_chat_id": -1,
    "timestamp": 1.5,
    "input_length": 20,
    "output_length": 7,
    "type": "text",
    "turn": 1,
    "hash_ids": [5, 6],
}
SECOND = FIRST | {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "turn": 2, "hash_ids": [5, 7]}


def read(path, *rows, format=None, log=None):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    batches = list((format or BailianFormat()).read(Lines(path), log or ReadLog()))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_A16_times_are_seconds_and_turns_are_linked_to_their_session(tmp_path):
    third = SECOND | {"chat_id": 200, "parent_chat_id": 159, "turn": 3, "type": "search"}
    orphan = SECOND | {"chat_id": 300, "parent_chat_id": 12}
    rows = read(tmp_path / "t.jsonl", FIRST, SECOND, third, orphan)
    assert rows[1] == {
        "arrival_ns": 61_114_000_000,
        "input_tokens": 20,
        "output_tokens": 7,
        "block_ids": [5, 7],
        "request_id": "159",
        "session_id": "55",
        "turn": 1,
        "type": "text",
        "x_row": 2,
    }
    assert [row["session_id"] for row in rows] == ["55", "55", "55", "12"]
    assert [row["turn"] for row in rows] == [0, 1, 2, 1]


def test_A11_ids_of_two_files_match_only_if_that_is_said(tmp_path):
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file in files:
        file.write_text(json.dumps(FIRST))
    for shared, hits in ((False, 0), (True, 1)):
        import_trace(files, tmp_path / "t.arrow", format=BailianFormat(), shared_ids=shared, force=True)
        result = kvbench.replay(tmp_path / "t.arrow")
        assert result.summary["blocks"]["hit"] == hits


def test_sessions_of_two_files_are_two(tmp_path):
    format = BailianFormat()
    names = [read(tmp_path / "a.jsonl", FIRST, SECOND, format=format)[1]["session_id"] for _ in range(2)]
    assert names == ["55", "2/55"]


BAD = {
    "no time": ({key: value for key, value in FIRST.items() if key != "timestamp"}, "line = .*missing required field"),
    "negative": (FIRST | {"timestamp": -1}, "timestamp = -1.0: must not be negative"),
    "length": (FIRST | {"input_length": -1}, "input_length = -1: must be from 0"),
    "id": (FIRST | {"hash_ids": [-1]}, "hash_ids = -1: must be from 0"),
    "text id": (FIRST | {"hash_ids": ["a"]}, r"hash_ids\[0\] = 'a': expected `int`, got `str`"),
    "unknown": (FIRST | {"colour": 1}, "line = .*: object contains unknown field `colour`"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_told_and_can_be_left_out(tmp_path, case):
    row, message = BAD[case]
    with pytest.raises(TraceError, match=rf"t.jsonl, row 2, {message}"):
        read(tmp_path / "t.jsonl", FIRST, row, SECOND)
    log = ReadLog(skip=True)
    assert [row["x_row"] for row in read(tmp_path / "t.jsonl", FIRST, row, SECOND, log=log)] == [1, 3]
    assert log.rejected.count == 1
