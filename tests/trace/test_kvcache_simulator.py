"""kvcache-simulator's input: one block size, no times, and tails told from the rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from kvbench.errors import TraceError
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.kvcache_simulator import KvcacheSimulatorFormat
from kvbench.trace.formats.text import Lines


def read(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    format, log = KvcacheSimulatorFormat(), ReadLog()
    return pa.Table.from_batches(list(format.read(Lines(path), log))).to_pylist(), format.facts(), log


def row(tokens, *ids, size=16):
    return {"block_size": size, "hash_ids": list(ids), "input_length": tokens}


@pytest.mark.parametrize(
    ("rows", "tail_rule"),
    [
        ([row(32, 1, 2), row(33, 1, 2, 3)], "ceil"),
        ([row(32, 1, 2), row(33, 1, 2)], "floor"),
        ([row(32, 1, 2)], "ceil"),
        ([row(33, 1, 2), row(33, 1, 2, 3)], "ceil"),
    ],
)
def test_the_tail_rule_is_that_of_all_rows(tmp_path, rows, tail_rule):
    read_rows, facts, log = read(tmp_path / "t.jsonl", *rows)
    assert [(item["input_tokens"], item["block_ids"]) for item in read_rows] == [
        (item["input_length"], item["hash_ids"]) for item in rows
    ]
    assert (facts.block_tokens, facts.tail_rule) == (16, tail_rule)
    assert log.notes == ["the file has no times: all requests arrive at 0, in the order of the file"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(32, 1, size=32), "block_size = 32: is not that of the first line, 16"),
        (row(32, 1, size=0), "block_size = 0: must be 1 at least"),
        (row(-1, 1), "input_length = -1: must be from 0"),
        (row(16, -1), "hash_ids = -1: must be from 0"),
    ],
)
def test_a_bad_row_is_told(tmp_path, bad, message):
    with pytest.raises(TraceError, match=f"row 2, {message}"):
        read(tmp_path / "t.jsonl", row(16, 1), bad)
