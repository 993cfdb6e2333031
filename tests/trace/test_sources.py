"""Files that are no trace, or no longer whole, give one clear line."""

from __future__ import annotations

import gzip
import io
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from kvbench.errors import TraceError
from kvbench.trace import TraceBytes, open_trace


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
    assert f"convert it with `kvbench trace import {path} -o OUTPUT.arrow`" in message_of(path)
    assert "neither an Arrow nor a Parquet file" in message_of(io.BytesIO(path.read_bytes()))


@pytest.mark.parametrize("suffix", [".arrow", ".arrows", ".parquet"])
@pytest.mark.parametrize("compress", [gzip.compress, lambda data: pa.compress(data, "zstd", asbytes=True)])
def test_a_trace_that_is_compressed_as_a_whole_is_to_be_decompressed(make_table, save, tmp_path, suffix, compress):
    path = tmp_path / "t.packed"
    path.write_bytes(compress(save(make_table(), tmp_path / f"t{suffix}").read_bytes()))
    assert message_of(path).startswith(f"{path}: is compressed as a whole; decompress it")
    assert "is compressed; decompress it if it is an Arrow stream" in message_of(io.BytesIO(path.read_bytes()))


def test_a_compressed_text_is_sent_to_the_import(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"timestamp": 0}\n'))
    assert f"convert it with `kvbench trace import {path} -o OUTPUT.arrow`" in message_of(path)


def test_a_file_that_the_system_makes_up_is_read_as_a_stream():
    path = Path("/proc/version")
    if not path.exists():
        pytest.skip("there is no /proc here")
    assert message_of(path).startswith("/proc/version: is neither an Arrow nor a Parquet file")


def test_a_name_that_no_file_can_have_is_told(tmp_path):
    assert message_of(tmp_path / ("x" * 300)).endswith("cannot be read: File name too long")
    assert message_of(tmp_path / "a\0b").endswith("cannot be read: embedded null byte")


def test_closed_standard_input_is_told(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    assert message_of("-") == "-: standard input is closed"


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
def test_a_file_in_memory_is_read_as_the_file_is(make_table, save, tmp_path, suffix):
    path = save(make_table(), tmp_path / f"t{suffix}", 1)
    trace, same = open_trace(path), open_trace(TraceBytes(str(path), pa.py_buffer(path.read_bytes())))
    for _ in range(2):
        assert list(same.batches()) == list(trace.batches())
        assert (same.digest, same.rows) == (trace.digest, trace.rows)
    whole = path.read_bytes()
    for part in (b"", whole[:100], whole[:-1], gzip.compress(whole), b"no trace"):
        path.write_bytes(part)
        assert message_of(TraceBytes(str(path), pa.py_buffer(part))) == message_of(path)


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
