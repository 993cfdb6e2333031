"""Trace files appear whole or not at all, with the same bytes for the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.atomic import atomic_path
from kvbench.errors import OutputError
from kvbench.trace import TraceWriter, open_trace, recut
from kvbench.trace.schema import TraceFacts, make_schema

FACTS = TraceFacts(block_tokens=512, source_name="s")
COLUMNS = {"arrival_ns", "input_tokens", "output_tokens", "session_id", "priority", "output_token_ids"}
ROWS = st.lists(
    st.tuples(
        st.integers(1, 9),
        st.none() | st.integers(0, 9),
        st.none() | st.text("ab", max_size=9),
        st.none() | st.integers(-9, 9),
        st.none() | st.lists(st.integers(0, 9), max_size=5),
    ),
    min_size=1,
    max_size=40,
)


def write(path, batches, schema, **options):
    with TraceWriter(path, schema, FACTS, **options) as writer:
        for batch in batches:
            writer.write(batch)
    return path.read_bytes()


def batches_of(rows):
    schema = make_schema(COLUMNS)
    names = ("input_tokens", "output_tokens", "session_id", "priority", "output_token_ids")
    values = dict(zip(names, zip(*rows, strict=True), strict=True)) | {"arrival_ns": range(len(rows))}
    arrays = [pa.array(list(values[field.name]), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_what_is_written_is_read_back(make_table, tmp_path, suffix):
    wanted = list(open_trace(make_table()).batches())
    write(tmp_path / f"t{suffix}", wanted, wanted[0].schema)
    trace = open_trace(tmp_path / f"t{suffix}")
    assert list(trace.batches()) == wanted
    assert trace.facts == FACTS


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, step=st.integers(1, 7), max_rows=st.integers(1, 20))
def test_bytes_do_not_depend_on_how_rows_were_handed_in_or_what_lies_under_nulls(
    tmp_path_factory, rows, step, max_rows
):
    folder = tmp_path_factory.mktemp("bytes")
    whole = batches_of(rows)
    pieces = [whole.slice(start, step) for start in range(0, len(rows), step)]
    backwards = whole.take(pa.array(range(len(rows) - 1, -1, -1)))
    reordered = backwards.take(pa.array(range(len(rows) - 1, -1, -1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recut, "MAX_ROWS", max_rows)
        for suffix in (".arrow", ".parquet"):
            wanted = write(folder / f"a{suffix}", [whole], whole.schema)
            assert write(folder / f"b{suffix}", pieces, whole.schema) == wanted
            assert write(folder / f"c{suffix}", [reordered], whole.schema) == wanted
            stored = list(open_trace(folder / f"a{suffix}").batches())
            assert write(folder / f"d{suffix}", stored, whole.schema) == wanted


def test_bytes_under_nulls_are_not_written(tmp_path):
    schema = make_schema({"arrival_ns", "input_tokens", "output_tokens"})
    valid = pa.array([True, False, True]).buffers()[1]
    contents = []
    for hidden in (0, 99):
        values = pa.array([1, hidden, 3], pa.uint32()).buffers()[1]
        tokens = pa.Array.from_buffers(pa.uint32(), 3, [valid, values])
        batch = pa.RecordBatch.from_arrays(
            [pa.array([0, 1, 2]), pa.array([1, 1, 1], pa.uint32()), tokens], schema=schema
        )
        contents.append(write(tmp_path / f"{hidden}.arrow", [batch], schema))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["t.jsonl", "t", "t.arrow.gz"])
def test_another_suffix_is_refused_and_the_known_ones_are_told(tmp_path, empty_schema, name):
    with pytest.raises(OutputError, match=r"a trace is written as \.arrow or \.parquet"):
        TraceWriter(tmp_path / name, empty_schema, FACTS)


def test_an_existing_file_is_replaced_only_by_force(tmp_path, empty_schema):
    path = tmp_path / "t.arrow"
    path.write_text("precious")
    with pytest.raises(OutputError, match=r"t\.arrow exists; give --force to replace it"):
        write(path, [], empty_schema)
    assert path.read_text() == "precious"
    write(path, [], empty_schema, force=True)
    assert open_trace(path).schema.names == empty_schema.names
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.arrow"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_an_error_on_the_way_leaves_nothing(tmp_path, empty_schema, error, suffix):
    def stop_half_way():
        with TraceWriter(tmp_path / f"t{suffix}", empty_schema, FACTS):
            assert len(list(tmp_path.iterdir())) == 1
            raise error

    with pytest.raises(error):
        stop_half_way()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/t.arrow", "file/t.arrow"])
def test_a_place_that_cannot_be_written_is_told(tmp_path, empty_schema, place):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"t\.arrow cannot be written: "):
        write(tmp_path / place, [], empty_schema)


def test_a_directory_is_not_replaced_even_by_force(tmp_path):
    with pytest.raises(OutputError, match="is a directory"), atomic_path(tmp_path, force=True):
        pass


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "t"

    def write_while_somebody_else_does():
        with atomic_path(path) as temporary:
            temporary.write_text("new")
            path.write_text("theirs")

    with pytest.raises(OutputError, match="exists"):
        write_while_somebody_else_does()
    assert path.read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_two_writers_of_one_name_do_not_share_a_temporary_file(tmp_path):
    with atomic_path(tmp_path / "t", force=True) as one, atomic_path(tmp_path / "t", force=True) as two:
        assert one != two
