"""Rows that hold the new part of a prompt only are added up, and told from whole prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.formats import ReadLog
from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.formats.mooncake_delta import MooncakeDeltaFormat
from kvbench.trace.formats.text import Lines

B = 4


def row(time: int, length: int, ids: list[int] | None, out: int = 0, session: str | None = "s") -> dict[str, Any]:
    return {"timestamp": time, "input_length": length, "output_length": out, "hash_ids": ids, "session_id": session}


def read(path: Path, *rows: dict[str, Any]) -> tuple[list[dict[str, Any]], ReadLog]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    log = ReadLog()
    batches = MooncakeDeltaFormat(B).read(Lines(path), log)
    return [row for batch in batches for row in batch.to_pylist()], log


def test_a_prompt_is_the_one_before_its_answer_and_what_is_new(tmp_path: Path) -> None:
    """Four tokens, an answer of two, two new tokens: eight, which is what Dynamo and AIPerf send."""
    rows, log = read(tmp_path / "t.jsonl", row(0, 4, [1], out=2), row(5, 2, [2], out=1), row(9, 1, [3]))
    assert [row["input_tokens"] for row in rows] == [4, 8, 10]
    assert [len(row["block_ids"]) for row in rows] == [1, 2, 3]
    assert rows[1]["block_ids"][:1] == rows[0]["block_ids"]
    assert rows[2]["block_ids"][:2] == rows[1]["block_ids"]
    assert log.notes == []


def test_prompts_share_what_their_parts_share(tmp_path: Path) -> None:
    """Equal first rows are equal blocks; equal new parts after different answers are not."""
    rows, _ = read(
        tmp_path / "t.jsonl",
        *(row(0, 6, [1, 2], out=2, session=name) for name in "ab"),
        *(row(1, 4, [3], session=name) for name in "ab"),
    )
    first, second, third, fourth = (row["block_ids"] for row in rows)
    assert first == second
    assert third[0] == fourth[0] == first[0]
    assert not {*third[1:]} & {*fourth[1:]}


def test_known_answers_are_part_of_the_prefix(tmp_path: Path) -> None:
    answer = {"output_token_ids": [8, 9]}
    rows, _ = read(
        tmp_path / "t.jsonl",
        *(row(0, 6, [1, 2], out=2, session=name) | answer for name in "ab"),
        *(row(1, 4, [3], session=name) for name in "ab"),
    )
    assert rows[2]["block_ids"] == rows[3]["block_ids"]


def test_cumulative_rows_read_as_deltas_are_told(tmp_path: Path) -> None:
    """A28: L=8 [1,2] and L=16 [1,2,3,4] are 24 prompt tokens with 2 hits as whole prompts."""
    rows = [row(0, 8, [1, 2]), row(1, 16, [1, 2, 3, 4])]
    read_rows, log = read(tmp_path / "t.jsonl", *rows)
    assert [row["input_tokens"] for row in read_rows] == [8, 24]
    assert "rows begin with all ids of the turn before" in log.notes[0]
    assert "t.jsonl, row 2 first" in log.notes[0]
    import_trace(tmp_path / "t.jsonl", tmp_path / "t.arrow", format=MooncakeFormat(), block_tokens=B)
    table = pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches()))
    assert sum(table["input_tokens"].to_pylist()) == 24
    assert table["block_ids"].to_pylist() == [[0, 1], [0, 1, 2, 3]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 11), st.integers(0, 9), st.integers(0, 2)), max_size=12)
)
def test_blocks_are_equal_where_the_tokens_before_their_end_are(turns: list[tuple[str, int, int, int]]) -> None:
    """Against the prompts written out token by token."""
    import tempfile

    prompts: dict[str, list[object]] = {"a": [], "b": []}
    wanted, rows = [], []
    for at, (session, length, out, first) in enumerate(turns):
        ids = [first * 10 + block for block in range(-(-length // B))]
        rows.append(row(at, length, ids, out, session))
        prompt = prompts[session]
        prompt.extend((ids[token // B], token % B) for token in range(length))
        wanted.append([tuple(prompt[: start + B]) for start in range(0, len(prompt), B)])
        prompt.extend((session, at, token) for token in range(out))
    with tempfile.TemporaryDirectory() as folder:
        found, _ = read(Path(folder, "t.jsonl"), *rows)
    pairs = {
        (prefix, id)
        for prefixes, got in zip(wanted, found, strict=True)
        for prefix, id in zip(prefixes, got["block_ids"], strict=True)
    }
    assert len(pairs) == len({prefix for prefix, _ in pairs}) == len({id for _, id in pairs})


def test_what_cannot_be_added_up_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"row 1, hash_ids = 2 ids: 4 new tokens in blocks of 4 make 1"):
        read(tmp_path / "t.jsonl", row(0, 4, [1, 2]))
    with pytest.raises(TraceError, match=r"row 2, input_length = 1: makes a prompt of .* which is too long"):
        read(tmp_path / "t.jsonl", row(0, 4, [1], out=2**32 - 1), row(1, 1, [2]))
