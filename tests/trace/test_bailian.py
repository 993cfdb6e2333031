"""Bailian usage traces: what is read, and that two files share no block by accident."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kvbench.errors import TraceError
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
    for namespace, alike in (("file", False), ("shared", True)):
        format = BailianFormat(namespace=namespace)
        a = read(tmp_path / "a.jsonl", FIRST, format=format)
        b = read(tmp_path / "b.jsonl", FIRST, format=format)
        assert a[0]["block_ids"] == [5, 6]
        assert (a[0]["block_ids"] == b[0]["block_ids"]) is alike
        assert (a[0]["session_id"] == b[0]["session_id"]) is alike


def test_A11_ids_that_leave_no_room_to_tell_files_apart_are_refused(tmp_path):
    format = BailianFormat()
    wide = FIRST | {"hash_ids": [2**64 - 1, 1]}
    assert read(tmp_path / "a.jsonl", wide, format=format)[0]["block_ids"] == [2**64 - 1, 1]
    with pytest.raises(TraceError, match="row 1, hash_ids = 18446744073709551615: is too large to be told apart"):
        read(tmp_path / "b.jsonl", wide, format=format)


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
