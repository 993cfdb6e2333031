"""Files that are no trace, or no longer whole, give one clear line."""

from __future__ import annotations

import io
from contextlib import suppress

import pytest

from kvbench.errors import TraceError
from kvbench.trace import open_trace


def message_of(source) -> str:
    with pytest.raises(TraceError) as caught:
        list(open_trace(source).batches())
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_missing_file_is_named(tmp_path):
    assert message_of(tmp_path / "no.arrow") == f"{tmp_path}/no.arrow: cannot be read: No such file or directory"


def test_a_directory_is_no_trace(tmp_path):
    assert message_of(tmp_path) == f"{tmp_path}: is a directory; give one trace file"


def test_an_empty_file_is_no_trace(tmp_path):
    path = tmp_path / "t.arrow"
    path.touch()
    assert message_of(path) == f"{path}: is empty"
    assert message_of(io.BytesIO()) == "stream: is empty"


def test_jsonl_is_sent_to_the_import(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0}\n')
    assert f"convert it with `kvbench trace import {path} OUTPUT`" in message_of(path)
    assert "neither an Arrow nor a Parquet file" in message_of(io.BytesIO(path.read_bytes()))


def test_parquet_from_a_pipe_is_refused(make_table, save, tmp_path):
    path = save(make_table(), tmp_path / "t.parquet")
    assert message_of(io.BytesIO(path.read_bytes())) == (
        "stream: Parquet cannot be read from a pipe; give the file's path"
    )


@pytest.mark.parametrize("suffix", [".arrow", ".arrows", ".parquet"])
def test_a_file_that_is_cut_short_is_told_wherever_it_is_cut(make_table, save, tmp_path, suffix):
    whole = save(make_table(), tmp_path / f"whole{suffix}", 1).read_bytes()
    path = tmp_path / f"cut{suffix}"
    for size in range(8, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:size])
        assert message_of(path).startswith(f"{path}: is cut short or damaged: ")


def test_a_stream_that_breaks_off_is_told_wherever_it_breaks_off(make_table, save, tmp_path):
    whole = save(make_table(), tmp_path / "t.arrows", 1).read_bytes()
    for size in range(8, len(whole)):
        assert message_of(io.BytesIO(whole[:size])).startswith("stream: is cut short or damaged: ")


@pytest.mark.parametrize("suffix", [".arrow", ".arrows", ".parquet"])
def test_damage_inside_a_file_gives_rows_or_an_error_and_never_a_crash(make_table, save, tmp_path, suffix):
    whole = save(make_table(), tmp_path / f"whole{suffix}", 2).read_bytes()
    path = tmp_path / f"damaged{suffix}"
    for at in range(8, len(whole), max(1, len(whole) // 300)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with suppress(TraceError):
            list(open_trace(path).batches())


def test_what_is_no_source_at_all_is_a_type_error():
    with pytest.raises(TypeError, match="a trace is a path"):
        open_trace(42)
