"""Sources of many files: folders, globs, archives, pipes, remote stores, in any order."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.errors import ConfigError, KvbenchError, TraceError
from kvbench.trace import import_trace, open_trace
from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.members import Members

SHARDS = {
    "part-10.jsonl": range(5, 10),
    "part-9.jsonl": range(5),
}


def row(time: int, **extra: object) -> str:
    return json.dumps({"timestamp": time, "input_length": 600, "hash_ids": [7, time + 100], **extra}) + "\n"


def text_of(name: str) -> bytes:
    return "".join(row(time) for time in SHARDS[name]).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards, one of them compressed, a licence, a readme and a hidden file."""
    path = tmp_path / "shards"
    (path / "deeper").mkdir(parents=True)
    (path / "part-10.jsonl").write_bytes(text_of("part-10.jsonl"))
    (path / "deeper" / "part-9.jsonl.gz").write_bytes(gzip.compress(text_of("part-9.jsonl")))
    for name in ("LICENSE-APACHE", "README.md", ".DS_Store"):
        (path / name).write_text("words")
    return path


def archived(folder: Path, kind: str) -> Path:
    path = folder.with_suffix(f".{kind}")
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(folder.rglob("*")):
                archive.write(file, file.relative_to(folder))
        return path
    with tarfile.open(path, {"tar": "w", "tar.gz": "w:gz", "tar.bz2": "w:bz2"}[kind]) as archive:
        archive.add(folder, "shards")
    return path


def arrivals_ms(path: Path) -> list[int]:
    times = [time for batch in open_trace(path).batches() for time in batch.column("arrival_ns").to_pylist()]
    return [time // 1_000_000 for time in times]


def test_shards_in_the_wrong_order_replay_as_0_to_9(tmp_path: Path) -> None:
    """A20."""
    paths = [tmp_path / "shard-2.jsonl", tmp_path / "shard-1.jsonl"]
    paths[0].write_text("".join(row(time) for time in range(5)))
    paths[1].write_text("".join(row(time) for time in range(5, 10)))
    report = import_trace(paths, tmp_path / "t.arrow", format=MooncakeFormat(), shared_ids=True)
    assert arrivals_ms(tmp_path / "t.arrow") == list(range(10))
    assert (report.rows, report.members, report.distinct_blocks) == (10, 2, 11)


@pytest.mark.parametrize("kind", ["folder", "glob", "tar", "tar.gz", "tar.bz2", "zip"])
def test_a_folder_a_glob_and_an_archive_give_the_same_rows(folder: Path, tmp_path: Path, kind: str) -> None:
    source: Path | str = folder
    if kind == "glob":
        source = f"{folder}/**/part-*"
    elif kind != "folder":
        source = archived(folder, kind)
    members = Members(source)
    assert [lines.name.rsplit("/")[-1] for lines in members] == ["part-9.jsonl.gz", "part-10.jsonl"]
    report = import_trace(members, tmp_path / "t.arrow", format=MooncakeFormat(), shared_ids=True)
    assert arrivals_ms(tmp_path / "t.arrow") == list(range(10))
    assert report.decreasing_steps == 0
    if kind != "glob":
        assert report.passed_over == [".DS_Store", "LICENSE-APACHE", "README.md"]


def test_the_digest_of_many_files_is_that_of_their_contents_wherever_they_lie(folder: Path, tmp_path: Path) -> None:
    archives = [archived(folder, kind) for kind in ("tar", "tar.gz")]
    sources = [folder, *archives]
    digests = {
        import_trace(source, tmp_path / f"{at}.arrow", format=MooncakeFormat(), shared_ids=True).source_digest
        for at, source in enumerate(sources)
    }
    assert len(digests) == 1


def test_ids_of_different_files_are_kept_apart_unless_the_files_are_one_trace(tmp_path: Path) -> None:
    """A11: two files with one numbering each do not match by accident."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(row(0))
    source = f"{tmp_path}/?.jsonl"
    apart = import_trace(source, tmp_path / "apart.arrow", format=MooncakeFormat(), keep_ids=True)
    assert apart.distinct_blocks == 4
    assert any("ids of the 2 files are kept apart" in note for note in apart.notes)
    rows = next(batch.to_pylist() for batch in open_trace(tmp_path / "apart.arrow").batches())
    assert [row["original_ids"] for row in rows] == [[7, 100], [7, 100]]
    shared = import_trace(source, tmp_path / "shared.arrow", format=MooncakeFormat(), shared_ids=True)
    assert shared.distinct_blocks == 2
    assert not any("kept apart" in note for note in shared.notes)


def test_a_bad_row_is_told_with_the_file_it_stands_in(folder: Path, tmp_path: Path) -> None:
    with (folder / "part-10.jsonl").open("a") as file:
        file.write('{"timestamp": NaN, "input_length": 1}\n')
    for source in (folder, archived(folder, "tar.gz")):
        with pytest.raises(TraceError, match=r"part-10\.jsonl, row 6, line = .*: NaN and Infinity are no numbers"):
            import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat())
    assert not (tmp_path / "t.arrow").exists()


def test_a_session_goes_on_in_the_next_file(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(row(10, session_id="a"))
    (tmp_path / "2.jsonl").write_text(json.dumps({"delay": 5, "input_length": 5, "hash_ids": [1], "session_id": "a"}))
    import_trace(f"{tmp_path}/?.jsonl", tmp_path / "t.arrow", format=MooncakeFormat())
    assert arrivals_ms(tmp_path / "t.arrow") == [10, 15]


def test_standard_input_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(text_of("part-9.jsonl")))))
    import_trace("-", tmp_path / "t.arrow", format=MooncakeFormat())
    assert arrivals_ms(tmp_path / "t.arrow") == list(range(5))


def test_an_archive_may_come_from_a_pipe(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(archived(folder, "zip").read_bytes())))
    assert [lines.name for lines in Members("-")] == ["-!/deeper/part-9.jsonl.gz", "-!/part-10.jsonl"]


def test_a_source_that_has_no_rows_to_give_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no/\*\.jsonl: has no file that could be a trace"):
        Members("no/*.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceError, match="empty: has no file that could be a trace"):
        Members(tmp_path / "empty")
    with pytest.raises(TraceError, match=r"part-10\.jsonl: is given twice"):
        Members([folder, folder / "part-10.jsonl"])
    path = archived(folder, "zip")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TraceError, match=r"shards\.zip: is a damaged archive: BadZipFile"):
        Members(path)
    path = archived(folder, "tar.gz")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(TraceError, match=r"shards\.tar\.gz: cannot be decompressed or read to its end"):
        Members(path)


def test_a_remote_address_is_read_through_fsspec(folder: Path, tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for file in folder.rglob("part-*"):
        memory.pipe_file(f"/kvbench/{file.name}", file.read_bytes())
    for source in ("memory://kvbench", "memory://kvbench/*.jsonl*"):
        members = Members(source)
        assert [lines.name for lines in members] == [
            "memory:///kvbench/part-9.jsonl.gz",
            "memory:///kvbench/part-10.jsonl",
        ]
        import_trace(members, tmp_path / "t.arrow", format=MooncakeFormat(), shared_ids=True, force=True)
        assert arrivals_ms(tmp_path / "t.arrow") == list(range(10))
    with pytest.raises(TraceError, match=r"memory://kvbench/no\.jsonl: cannot be read: "):
        Members("memory://kvbench/no.jsonl")
    with pytest.raises(TraceError, match=r"nostore://a: is no address of a known store: "):
        Members("nostore://a")


def test_without_fsspec_a_remote_address_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ConfigError, match=r"^s3://bucket/t\.jsonl: fsspec is not installed; .*'kvbench\[remote\]'"):
        Members("s3://bucket/t.jsonl")


def test_a_file_name_that_is_no_text_is_written_out(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jsonl")
    (tmp_path / name).write_text(row(0))
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.add(tmp_path / name, name)
    for at, source in enumerate((tmp_path / name, tmp_path / "t.tar")):
        import_trace(source, tmp_path / f"{at}.arrow", format=MooncakeFormat())
    assert open_trace(tmp_path / "0.arrow").facts.source_name == r"caf\udce9.jsonl"


def _archive(kind: str) -> bytes:
    data = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.jsonl", row(0) * 20)
        return data.getvalue()
    with tarfile.open(fileobj=data, mode=f"w:{kind}") as tar:
        info = tarfile.TarInfo("a.jsonl")
        info.size = len(row(0))
        tar.addfile(info, io.BytesIO(row(0).encode()))
    return data.getvalue()


ARCHIVES = [_archive(kind) for kind in ("", "gz", "bz2", "zip")] + [gzip.compress(row(0).encode())]


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(ARCHIVES), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4), st.data()
)
def test_damaged_archives_end_in_an_error_of_ours(
    archive: bytes, changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    damaged = bytearray(archive)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.bin")
        path.write_bytes(damaged[: data.draw(st.integers(1, len(damaged)))])
        with contextlib.suppress(KvbenchError):
            import_trace(path, Path(folder, "t.arrow"), format=MooncakeFormat(), on_error="skip")
