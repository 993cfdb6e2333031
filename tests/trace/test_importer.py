"""Import: real Mooncake traces to the last figure; sorting, renumbering, skipping, reporting."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest

from kvbench.errors import ConfigError, OutputError, TraceError
from kvbench.trace import TraceFacts, guess_format, import_trace, open_trace
from kvbench.trace.formats import TraceFormat
from kvbench.trace.formats.mooncake import MooncakeFormat

ROW = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [4, 9]}


def jsonl(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path) -> list[dict]:
    return pa.Table.from_batches(list(open_trace(path).batches())).to_pylist()


@pytest.mark.parametrize(
    ("name", "rows", "mean_input", "mean_output", "blocks", "accesses"),
    [
        ("conversation", 12_031, 12035.061341534369, 342.6189011719724, 182_790, 288_500),
        ("synthetic", 3_993, None, None, 43_924, None),
    ],
)
def test_a_real_trace_is_imported_to_the_last_figure(
    shared, tmp_path, name, rows, mean_input, mean_output, blocks, accesses
):
    source = shared / "traces" / "mooncake" / f"{name}_trace.jsonl.gz"
    report = import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat(), keep_ids=True)
    measured = json.loads((source.parent / "measured.json").read_text())[name]["stats"]
    trace = open_trace(tmp_path / "t.arrow")
    table = pa.Table.from_batches(list(trace.batches()))
    assert report.rows == table.num_rows == measured["requests"] == rows
    assert report.distinct_blocks == measured["unique_blocks"] == blocks
    assert (
        len(table["block_ids"].combine_chunks().flatten())
        == measured["total_blocks"]
        == (accesses or measured["total_blocks"])
    )
    assert table["input_tokens"].to_numpy().mean() == measured["avg_in"] == (mean_input or measured["avg_in"])
    assert table["output_tokens"].to_numpy().mean() == measured["avg_out"] == (mean_output or measured["avg_out"])
    with gzip.open(source, "rt") as file:
        wanted = [json.loads(line) for line in file]
    assert table["arrival_ns"].to_pylist() == [row["timestamp"] * 1_000_000 for row in wanted]
    assert table["original_ids"].to_pylist() == [row["hash_ids"] for row in wanted]
    if name == "conversation":
        assert table["block_ids"].equals(table["original_ids"])
    assert trace.facts == TraceFacts(
        block_tokens=512,
        dense=True,
        source_name=source.name,
        source_format="mooncake",
        source_digest=report.source_digest,
    )
    assert (report.skipped, report.decreasing_steps) == (0, 0)


def test_the_conversation_traces_clock_is_told_to_be_coarse(shared, tmp_path):
    source = shared / "traces" / "mooncake" / "conversation_trace.jsonl.gz"
    report = import_trace(source, tmp_path / "t.parquet", format=MooncakeFormat())
    assert any("10,851 of 12,030 neighbouring rows (90%) arrive at the same time" in note for note in report.notes)


def test_rows_are_sorted_by_arrival_and_ties_keep_file_order(tmp_path):
    times = [3, 1, 2, 1]
    source = jsonl(tmp_path / "s.jsonl", *({**ROW, "timestamp": t, "request_id": i} for i, t in enumerate(times)))
    report = import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat())
    rows = rows_of(tmp_path / "t.arrow")
    assert [row["arrival_ns"] // 1_000_000 for row in rows] == [1, 1, 2, 3]
    assert [row["request_id"] for row in rows] == ["1", "3", "2", "0"]
    assert report.decreasing_steps == 2
    assert any("went back 2 times" in note for note in report.notes)


def test_a_strict_order_makes_a_step_back_an_error(tmp_path):
    source = jsonl(tmp_path / "s.jsonl", *({**ROW, "timestamp": t} for t in (3, 1, 2)))
    with pytest.raises(TraceError, match=r"s\.jsonl, row 2, arrival_ns = 1000000: is before the previous row's 3,000"):
        import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat(), strict_order=True)
    assert not (tmp_path / "t.arrow").exists()


def test_ids_are_renumbered_in_first_seen_order_after_sorting(tmp_path):
    later = {**ROW, "timestamp": 9, "hash_ids": [2**64 - 1, 4]}
    source = jsonl(tmp_path / "s.jsonl", later, ROW)
    report = import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat(), keep_ids=True)
    rows = rows_of(tmp_path / "t.arrow")
    assert [row["block_ids"] for row in rows] == [[0, 1], [2, 0]]
    assert [row["original_ids"] for row in rows] == [[4, 9], [2**64 - 1, 4]]
    assert report.distinct_blocks == 3


def test_without_keep_ids_the_original_ids_are_not_kept(tmp_path):
    import_trace(jsonl(tmp_path / "s.jsonl", ROW), tmp_path / "t.arrow", format=MooncakeFormat())
    assert "original_ids" not in rows_of(tmp_path / "t.arrow")[0]


def test_columns_that_hold_nothing_are_left_out(tmp_path):
    source = jsonl(tmp_path / "s.jsonl", {"timestamp": 0, "input_length": 5})
    report = import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat())
    trace = open_trace(tmp_path / "t.arrow")
    assert trace.schema.names == ["arrival_ns", "input_tokens"]
    assert (trace.facts.dense, report.distinct_blocks) == (False, None)


BAD_ROWS = {
    "syntax": ('{"timestamp"', r"row 7, line = .*: is not valid JSON"),
    "count": (
        json.dumps({**ROW, "hash_ids": [1]}),
        r"row 7, block_ids = 1 id: 600 input tokens in blocks of 512 .* make 2",
    ),
    "repeat": (json.dumps({**ROW, "hash_ids": [1, 1]}), r"row 7, block_ids = 1: stands twice"),
    "time": (json.dumps({**ROW, "timestamp": -1}), r"row 7, timestamp = -1: must not be negative"),
    "length": (json.dumps({**ROW, "input_length": 0, "hash_ids": []}), r"row 7, input_tokens = 0: "),
    "no ids": (json.dumps({"timestamp": 0, "input_length": 5}), r"row 7, block_ids = None: must not be null"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_row_ends_the_import_without_an_output_or_is_skipped_and_counted(tmp_path, case):
    bad, message = BAD_ROWS[case]
    source = tmp_path / "bad.jsonl"
    good = [json.dumps({**ROW, "timestamp": 20 - time}) for time in range(9)]
    source.write_text("\n".join([*good[:6], bad, *good[6:]]))
    with pytest.raises(TraceError, match=rf"^{source}, {message}"):
        import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat())
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.jsonl"]
    report = import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat(), on_error="skip")
    assert (report.rows, report.skipped, len(report.skipped_examples)) == (9, 1, 1)
    assert len(rows_of(tmp_path / "t.arrow")) == 9


def test_the_block_size_can_be_given(tmp_path):
    source = jsonl(tmp_path / "s.jsonl", {"timestamp": 0, "input_length": 33, "hash_ids": [1, 2, 3]})
    import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat(), block_tokens=16)
    assert open_trace(tmp_path / "t.arrow").facts.block_tokens == 16
    with pytest.raises(TraceError, match="make 1; --block-tokens from 11 to 16 would fit the rows so far"):
        import_trace(source, tmp_path / "u.arrow", format=MooncakeFormat())
    with pytest.raises(ConfigError, match="block_tokens = 0"):
        import_trace(source, tmp_path / "u.arrow", format=MooncakeFormat(), block_tokens=0)
    with pytest.raises(ConfigError, match="block_tokens = 4294967296 is not a block size"):
        import_trace(source, tmp_path / "u.arrow", format=MooncakeFormat(), block_tokens=2**32)


def test_estimates_and_unused_fields_are_reported(tmp_path):
    turn = {**ROW, "session_id": "a", "extra": {}}
    del turn["timestamp"]
    source = jsonl(tmp_path / "s.jsonl", {**turn, "timestamp": 0}, {**turn, "delay": 5})
    report = import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat())
    assert (report.estimated_arrivals, report.ignored_fields) == (1, {"extra": 2})
    assert any(note.startswith("1 arrivals were estimated") for note in report.notes)
    assert any("extra (2 rows)" in note for note in report.notes)


def test_a_source_without_rows_is_an_error(tmp_path):
    source = tmp_path / "s.jsonl"
    source.write_text("\n\n")
    with pytest.raises(TraceError, match=r"s\.jsonl: has no rows"):
        import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat())
    with pytest.raises(TraceError, match=r"s\.jsonl: is empty"):
        guess_format(source, [("mooncake", MooncakeFormat())])


def test_a_bad_output_is_told_before_the_source_is_read(tmp_path):
    with pytest.raises(OutputError, match="is written as"):
        import_trace(tmp_path / "missing", tmp_path / "t.csv", format=MooncakeFormat())


def test_the_same_source_gives_the_same_bytes(tmp_path):
    source = jsonl(tmp_path / "s.jsonl", *({**ROW, "timestamp": 5 - t, "session_id": t % 2} for t in range(5)))
    for suffix in (".arrow", ".parquet"):
        for name in "ab":
            import_trace(source, tmp_path / f"{name}{suffix}", format=MooncakeFormat())
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_the_format_is_guessed_from_the_file(tmp_path):
    source = jsonl(tmp_path / "s.jsonl", ROW)
    known = [("mooncake", MooncakeFormat())]
    assert guess_format(source, known)[0] == "mooncake"
    with pytest.raises(TraceError, match=r"could be any of \(mooncake, other\); say which with --format"):
        guess_format(source, [*known, ("other", MooncakeFormat())])
    with pytest.raises(TraceError, match=r"looks like none of the known formats \(mooncake\)"):
        guess_format(jsonl(tmp_path / "u.jsonl", {"a": 1}), known)
    nested = tmp_path / "nested.jsonl"
    nested.write_text("[" * 100_000)
    with pytest.raises(TraceError, match="looks like none"):
        guess_format(nested, known)


def test_an_empty_file_among_others_has_no_rows_and_no_say(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    jsonl(tmp_path / "b.jsonl", ROW)
    (tmp_path / "c.jsonl").write_text("\n")
    name, format = guess_format(tmp_path, [("mooncake", MooncakeFormat())])
    assert name == "mooncake"
    assert import_trace(tmp_path, tmp_path / "t.arrow", format=format).rows == 1


def test_a_file_with_a_field_that_nobody_knows_is_still_guessed_and_the_field_is_named(tmp_path):
    source = jsonl(tmp_path / "s.jsonl", ROW | {"colour": 1})
    name, format = guess_format(source, [("mooncake", MooncakeFormat())])
    assert name == "mooncake"
    with pytest.raises(TraceError, match=r"row 1, field = 'colour': is unknown; known are timestamp"):
        import_trace(source, tmp_path / "t.arrow", format=format)


@pytest.mark.parametrize("suffix", [".arrow", ".arrows", ".parquet"])
def test_a_file_that_is_a_trace_already_is_not_imported(make_table, save, tmp_path, suffix):
    path = save(make_table(), tmp_path / f"t{suffix}")
    message = rf"t{suffix}: is an Arrow or Parquet file already"
    with pytest.raises(TraceError, match=message):
        guess_format(path, [("mooncake", MooncakeFormat())])
    with pytest.raises(TraceError, match=message):
        import_trace(path, tmp_path / "u.arrow", format=MooncakeFormat())


@pytest.mark.parametrize("bad", ['{"timestamp"', json.dumps({**ROW, "hash_ids": [1]})], ids=["syntax", "rule"])
def test_an_import_that_would_leave_no_row_fails_and_leaves_no_file(tmp_path, bad):
    source = tmp_path / "bad.jsonl"
    source.write_text(f"{bad}\n{bad}\n")
    with pytest.raises(TraceError, match=r"bad\.jsonl: no row is left, for none of 2 is good; .*bad\.jsonl, row 1, "):
        import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat(), on_error="skip")
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.jsonl"]


def test_a_source_is_not_overwritten_by_its_own_import(tmp_path):
    source = jsonl(tmp_path / "s.arrow", ROW)
    (tmp_path / "link.arrow").symlink_to(source)
    for output in (source, tmp_path / "link.arrow"):
        with pytest.raises(OutputError, match="is the file that is imported"):
            import_trace(source, output, format=MooncakeFormat(), force=True)
    assert rows_count(source) == 1


def rows_count(path) -> int:
    return len(path.read_text().splitlines())


class SessionScoped(TraceFormat):
    """Ids that mean something inside a session only."""

    def sniff(self, head, name):
        return False

    def facts(self):
        return TraceFacts(block_tokens=1, id_scope="session")

    def read(self, lines, log):
        list(lines)
        yield pa.RecordBatch.from_pydict(
            {
                "arrival_ns": pa.array([0, 1, 2, 3, 4]),
                "input_tokens": pa.array([2, 2, 2, 2, 2], pa.uint32()),
                "block_ids": pa.array([[1, 2], [1, 2], [1, 3], [1, 2], [1, 2]], pa.list_(pa.uint64())),
                "session_id": ["a", "b", "a", None, None],
            }
        )


def test_ids_of_different_sessions_become_different_where_their_scope_is_the_session(tmp_path):
    (tmp_path / "s").touch()
    import_trace(tmp_path / "s", tmp_path / "t.arrow", format=SessionScoped())
    assert [row["block_ids"] for row in rows_of(tmp_path / "t.arrow")] == [[0, 1], [2, 3], [0, 4], [5, 6], [7, 8]]
    assert open_trace(tmp_path / "t.arrow").facts.id_scope == "file"


def test_many_rows_keep_their_order_over_batches(tmp_path):
    times = np.random.default_rng(3).integers(0, 1000, 10_000)
    source = jsonl(
        tmp_path / "s.jsonl",
        *({"timestamp": int(time), "input_length": 1, "request_id": row} for row, time in enumerate(times)),
    )
    import_trace(source, tmp_path / "t.arrow", format=MooncakeFormat())
    order = [int(row["request_id"]) for row in rows_of(tmp_path / "t.arrow")]
    assert order == np.argsort(times, kind="stable").tolist()


def test_without_a_session_column_session_ids_are_told_apart_by_row(tmp_path, monkeypatch):
    read = SessionScoped.read

    def without_sessions(self, lines, log):
        for batch in read(self, lines, log):
            yield batch.select(["arrival_ns", "input_tokens", "block_ids"])

    monkeypatch.setattr(SessionScoped, "read", without_sessions)
    (tmp_path / "s").touch()
    report = import_trace(tmp_path / "s", tmp_path / "t.arrow", format=SessionScoped())
    assert report.distinct_blocks == 10
