"""Prompts that are longer than a model takes."""

from __future__ import annotations

import foreign
import pyarrow as pa
import pytest

from kvbench.errors import ConfigError, TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.limit import PromptLimit

LONG = {"timestamp": 0, "input_length": 9000, "output_length": 1, "hash_ids": list(range(18))}
SHORT = {"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [0, 99]}


def imported(tmp_path, limit: PromptLimit, on_error: str = "fail", choice: str = "mooncake", **params):
    (tmp_path / "s.jsonl").write_bytes(foreign.jsonl(LONG, SHORT))
    report = import_trace(
        tmp_path / "s.jsonl",
        tmp_path / "t.arrow",
        format=foreign.make(choice, **params),
        limit=limit,
        on_error=on_error,
        force=True,
    )
    return pa.Table.from_batches(list(open_trace(tmp_path / "t.arrow").batches())).to_pylist(), report


def test_a24_a_prompt_that_is_too_long_is_rejected(tmp_path):
    with pytest.raises(TraceError, match=r"row 1, input_tokens = 9000: is more than the 8,192 that a prompt may have"):
        imported(tmp_path, PromptLimit(8192))
    rows, report = imported(tmp_path, PromptLimit(8192), "skip")
    assert ([row["input_tokens"] for row in rows], report.skipped) == ([600], 1)


def test_a24_or_clipped_to_the_ids_of_what_is_left_and_counted(tmp_path):
    rows, report = imported(tmp_path, PromptLimit(8192, clip=True))
    assert [row["input_tokens"] for row in rows] == [8192, 600]
    assert [row["block_ids"] for row in rows] == [list(range(16)), [0, 16]]
    assert "1 prompts were clipped to 8,192 tokens" in report.notes


def test_tokens_are_clipped_like_ids(tmp_path):
    rows, _ = imported(tmp_path, PromptLimit(5, clip=True), choice="columns", arrival="timestamp:ms", tokens="hash_ids")
    assert [row["token_ids"] for row in rows] == [[0, 1, 2, 3, 4], [0, 99]]


def test_a_limit_must_let_a_prompt_through():
    with pytest.raises(ConfigError, match="the most tokens of a prompt, 0, must be from 1"):
        PromptLimit(0)
