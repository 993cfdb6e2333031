"""The public face of the package is what it says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kvbench


def test_every_public_name_can_be_imported() -> None:
    assert set(kvbench.__all__) <= set(dir(kvbench))
    for name in kvbench.__all__:
        assert getattr(kvbench, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        kvbench.nonsense  # noqa: B018


def test_replay_takes_a_table_a_stream_and_a_configuration() -> None:
    table = pa.table(
        {"arrival_ns": [0, 1, 2], "input_tokens": [40, 40, 24], "block_ids": [[1, 2, 3], [1, 2, 3], [1, 4]]}
    )
    config = kvbench.RunConfig(block_tokens=16, capacity=100)
    result = kvbench.replay(table, config=config, keep_requests=True)
    assert result.requests is not None
    assert result.requests["hit_blocks"].to_pylist() == [0, 2, 1]
    assert result.rates["full_block"] == 3 / 5
    assert kvbench.replay(table.to_reader(), config=config, tails="keep").rates["block"] == 4 / 8


def test_progress_is_told_of_rows_done_and_rows_there_are() -> None:
    calls: list[tuple[int, int | None]] = []
    sample = Path(__file__).parents[1] / "traces" / "chat.arrow"
    kvbench.replay(sample, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (1_952, 1_952)


def test_wrong_setting_raises_before_anything_is_read() -> None:
    with pytest.raises(kvbench.ConfigError, match="did you mean 'capacity'"):
        kvbench.replay("no such file", capcity=3)
