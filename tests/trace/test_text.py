"""A text file gives the same lines however it was stored."""

from __future__ import annotations

import bz2
import gzip
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from blake3 import blake3

from kvbench.errors import TraceError
from kvbench.trace.formats.text import Lines

WANTED = [(1, b"one"), (2, "zw\u00f6".encode()), (3, b"three")]
PLAIN = "one\nzw\u00f6\nthree\n".encode()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


FORMS = {
    "plain": PLAIN,
    "crlf": PLAIN.replace(b"\n", b"\r\n"),
    "mark": b"\xef\xbb\xbf" + PLAIN,
    "blank end": PLAIN + b"\n\n  \n",
    "no final newline": PLAIN[:-1],
    "gzip": gzip.compress(PLAIN),
    "gzip members": gzip.compress(PLAIN[:6]) + gzip.compress(PLAIN[6:]),
    "gzip with mark": gzip.compress(b"\xef\xbb\xbf" + PLAIN),
    "zstd": zstd(PLAIN),
    "zstd frames": zstd(PLAIN[:6]) + zstd(PLAIN[6:]),
    "bzip2": bz2.compress(PLAIN),
    "bzip2 streams": bz2.compress(PLAIN[:6]) + bz2.compress(PLAIN[6:]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_lines(tmp_path, form):
    path = tmp_path / "t.txt"
    path.write_bytes(FORMS[form])
    lines = Lines(path)
    assert list(lines) == WANTED
    assert lines.digest == f"blake3:{blake3(FORMS[form]).hexdigest()}"
    assert lines.head(3) == b"one"
    assert list(lines) == WANTED


def test_a_blank_line_between_is_left_out_and_still_counted(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"\none\n\n\ntwo")
    assert list(Lines(path)) == [(2, b"one"), (5, b"two")]


def test_lines_longer_than_a_chunk_are_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("kvbench.trace.formats.text.CHUNK_BYTES", 3)
    path = tmp_path / "t.txt"
    path.write_bytes(PLAIN)
    assert list(Lines(path)) == WANTED


@pytest.mark.parametrize("form", ["gzip", "zstd", "bzip2"])
def test_a_compressed_file_that_is_cut_short_is_told(tmp_path, form):
    path = tmp_path / "t.txt"
    path.write_bytes(FORMS[form][:-6])
    with pytest.raises(TraceError, match=r"t\.txt: cannot be decompressed or read to its end"):
        list(Lines(path))


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(TraceError, match=r"no\.txt: cannot be read: No such file"):
        list(Lines(tmp_path / "no.txt"))
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        Lines(tmp_path).head()


def piped(path: Path, data: bytes) -> threading.Thread:
    """A named pipe that gives out ``data`` once."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    return writer


@pytest.mark.parametrize("form", FORMS)
def test_what_was_looked_at_comes_again_so_a_pipe_loses_nothing(tmp_path, form):
    path = tmp_path / "pipe"
    writer = piped(path, FORMS[form])
    lines = Lines(path)
    assert lines.head(3) == b"one"
    assert lines.head(8) == PLAIN[:8].replace(b"\n", b"\r\n" if form == "crlf" else b"\n")[:8]
    assert list(lines) == WANTED
    assert lines.digest == f"blake3:{blake3(FORMS[form]).hexdigest()}"
    writer.join()
    with pytest.raises(TraceError, match="pipe: can be read only once; save it to a file"):
        list(lines)


def test_a_name_that_no_file_can_have_is_told(tmp_path):
    with pytest.raises(TraceError, match="cannot be read: File name too long"):
        list(Lines(tmp_path / ("x" * 300)))
    with pytest.raises(TraceError, match="cannot be read: embedded null byte"):
        list(Lines(tmp_path / "a\0b"))
