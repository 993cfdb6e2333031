"""The same rows come out of a trace in every form: batches, digest, figures."""

from __future__ import annotations

import io
import os
import threading

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbench.errors import ConfigError, TraceError
from kvbench.trace import open_trace, recut
from kvbench.trace.schema import TraceFacts
from kvbench.trace.validate import BatchValidator

FACTS = TraceFacts(block_tokens=4)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(1, 40),
        st.none() | st.integers(0, 9),
        st.none() | st.text("aé\u20ac", max_size=3),
        st.none() | st.lists(st.integers(0, 2**32 - 1), max_size=3),
    ),
    max_size=30,
)


def table_of(make_table, rows):
    arrival, arrivals, ids, fresh = 0, [], [], 0
    for gap, tokens, *_ in rows:
        arrival += gap
        arrivals.append(arrival)
        count = -(-tokens // 4)
        ids.append(range(fresh, fresh + count))
        fresh += count // 2
    return make_table(
        FACTS,
        arrival_ns=arrivals,
        input_tokens=[row[1] for row in rows],
        output_tokens=[row[2] for row in rows],
        block_ids=[list(row) for row in ids],
        session_id=[row[3] for row in rows],
        output_token_ids=[row[4] for row in rows],
    )


def read(source):
    trace = open_trace(source)
    batches = list(trace.batches())
    return batches, trace.digest


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, chunk_rows=st.integers(1, 9), max_rows=st.integers(1, 8), max_ids=st.integers(1, 40))
def test_batches_and_digest_do_not_depend_on_file_form_or_chunks(
    make_table, save, tmp_path_factory, rows, chunk_rows, max_rows, max_ids
):
    folder = tmp_path_factory.mktemp("forms")
    table = table_of(make_table, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recut, "MAX_ROWS", max_rows)
        patch.setattr(recut, "MAX_IDS", max_ids)
        wanted, digest = read(table)
        stream = save(table, folder / "t.arrows", chunk_rows)
        forms = [
            save(table, folder / "t.arrow", chunk_rows),
            stream,
            save(table, folder / "t.parquet", chunk_rows),
            io.BytesIO(stream.read_bytes()),
            io.BytesIO((folder / "t.arrow").read_bytes()),
            table.to_reader(max_chunksize=chunk_rows),
        ]
        for form in forms:
            batches, other = read(form)
            assert batches == wanted
            assert [batch.schema for batch in batches] == [batch.schema for batch in wanted]
            assert other == digest
    assert pa.Table.from_batches(wanted, wanted[0].schema if wanted else table.schema).num_rows == len(rows)


def test_other_types_of_the_same_values_give_the_same_digest(make_table):
    plain = make_table(session_id=["a", None, "a"])
    other = make_table(
        arrival_ns=pa.array([0, 5, 5], pa.int16()),
        input_tokens=pa.array([512, 513, 1024], pa.uint64()),
        block_ids=pa.array([[0], [0, 1], [0, 2]], pa.large_list(pa.int32())),
        session_id=pa.array(["a", None, "a"]).dictionary_encode(),
        x_note=[1.5, 2.5, None],
    )
    assert read(other) == read(plain)


@pytest.mark.parametrize(
    "change",
    [
        {"arrival_ns": [0, 5, 6]},
        {"output_tokens": [10, 0, 0]},
        {"output_tokens": None},
        {"block_ids": [[0], [0, 1], [0, 3]]},
        {"input_tokens": [511, 513, 1024]},
        {"session_id": ["a", "b", "c"]},
        {"facts": TraceFacts(block_tokens=512, id_kind="content")},
    ],
)
def test_the_digest_changes_with_any_value_and_any_fact(make_table, change):
    assert read(make_table(**change))[1] != read(make_table())[1]


def test_strings_with_equal_text_but_other_borders_have_other_digests(make_table):
    assert read(make_table(tenant=["ab", "c", ""]))[1] != read(make_table(tenant=["a", "bc", ""]))[1]


def test_where_the_trace_came_from_is_not_part_of_its_digest(make_table):
    named = make_table(TraceFacts(block_tokens=512, source_name="a", source_digest="blake3:00"))
    assert read(named)[1] == read(make_table())[1]


def test_the_digest_is_there_after_a_whole_pass_only(make_table):
    trace = open_trace(make_table())
    assert trace.digest is None
    next(trace.batches())
    assert trace.digest is None
    list(trace.batches())
    first = trace.digest
    assert first is not None
    list(trace.batches())
    assert trace.digest == first


def test_a_trace_tells_its_facts_ids_and_rows(make_table, save, tmp_path):
    table = make_table()
    trace = open_trace(save(table, tmp_path / "t.arrow", 2))
    assert (trace.name, trace.ids, trace.rewindable) == (str(tmp_path / "t.arrow"), "block_ids", True)
    assert trace.rows in (3, None)
    assert trace.facts == TraceFacts(block_tokens=512)
    assert open_trace(save(table, tmp_path / "t.parquet")).rows == 3
    assert open_trace(make_table(block_ids=None)).ids is None
    tokens = make_table(block_ids=None, input_tokens=[1, 2, 1], token_ids=[[7], [7, 7], [1]])
    assert open_trace(tokens).ids == "token_ids"
    assert len(read(tokens)[0]) == 1


def test_block_size_and_tail_rule_can_be_given_instead_of_the_files(make_table):
    floor = make_table(block_ids=[[0], [0], [0, 2]])
    trace = open_trace(floor, tail_rule="floor")
    assert trace.facts.tail_rule == "floor"
    assert sum(batch.num_rows for batch in trace.batches()) == 3
    small = make_table(TraceFacts(), input_tokens=[33, 16, 17], block_ids=[[0, 1, 2], [0], [0, 3]])
    assert sum(batch.num_rows for batch in open_trace(small, block_tokens=16).batches()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_tokens": 0}, "block_tokens = 0 is not a block size"),
        ({"tail_rule": "round"}, "tail_rule = 'round' is not one of ceil, floor"),
        ({"on_error": "ignore"}, "on_error = 'ignore' is not one of fail, skip"),
    ],
)
def test_wrong_options_are_refused(make_table, options, message):
    with pytest.raises(ConfigError, match=message):
        open_trace(make_table(), **options)


def test_standard_input_is_a_stream(make_table, save, tmp_path, monkeypatch):
    stream = save(make_table(), tmp_path / "t.arrows")
    with stream.open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        trace = open_trace("-")
        assert (trace.name, trace.rewindable, trace.rows) == ("-", False, None)
        assert list(trace.batches()) == read(make_table())[0]


def test_a_pipe_can_be_read_in_small_pieces_and_only_once(make_table, save, tmp_path):
    data = save(make_table(), tmp_path / "t.arrows", 1).read_bytes()
    out, into = os.pipe()

    def feed():
        with os.fdopen(into, "wb", buffering=0) as file:
            for start in range(0, len(data), 7):
                file.write(data[start : start + 7])

    writer = threading.Thread(target=feed)
    writer.start()
    with os.fdopen(out, "rb") as file:
        trace = open_trace(file)
        assert list(trace.batches()) == read(make_table())[0]
        with pytest.raises(TraceError, match="can be read only once"):
            trace.batches()
    writer.join()


def test_a_named_pipe_is_read_as_a_stream(make_table, save, tmp_path):
    data = save(make_table(), tmp_path / "t.arrows").read_bytes()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(data,))
    writer.start()
    trace = open_trace(fifo)
    assert not trace.rewindable
    assert list(trace.batches()) == read(make_table())[0]
    writer.join()


def test_batches_of_a_mapped_file_stay_valid_after_later_ones_are_read(make_table, save, tmp_path):
    count = 5000
    table = make_table(
        arrival_ns=range(count), input_tokens=[512] * count, output_tokens=None, block_ids=[[n] for n in range(count)]
    )
    path = save(table, tmp_path / "t.arrow", 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recut, "MAX_ROWS", 100)
        batches = list(open_trace(path).batches())
    assert [batch.column("arrival_ns")[0].as_py() for batch in batches] == list(range(0, count, 100))


def test_a_trace_without_rows_has_no_batches(make_table):
    batches, digest = read(make_table().slice(0, 0))
    assert batches == []
    assert digest is not None


@pytest.mark.parametrize("suffix", [".arrow", ".arrows"])
def test_batches_of_one_row_each_are_checked_many_at_a_time(make_table, save, tmp_path, monkeypatch, suffix):
    rows = 3_000
    table = make_table(
        arrival_ns=list(range(rows)),
        input_tokens=[512] * rows,
        output_tokens=None,
        block_ids=[[row] for row in range(rows)],
        model=pa.array(["a", "b", "a"] * (rows // 3)).dictionary_encode(),
    )
    path = save(table, tmp_path / f"t{suffix}", 1)
    checked = []
    check = BatchValidator.check
    monkeypatch.setattr(BatchValidator, "check", lambda *args: checked.append(args[1].num_rows) or check(*args))
    assert pa.Table.from_batches(list(open_trace(path).batches()))["model"].to_pylist() == table["model"].to_pylist()
    assert sum(checked) == rows
    assert len(checked) <= rows // 256 + 1


def test_a_bad_row_is_told_before_damage_that_comes_after_it(make_table, save, tmp_path):
    path = save(make_table(arrival_ns=[0, -1, 5]), tmp_path / "t.arrows", 1)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TraceError, match="row 2, arrival_ns = -1: must not be negative"):
        list(open_trace(path).batches())


def test_the_rows_that_are_kept_know_their_number_in_the_file(make_table):
    table = make_table(
        arrival_ns=list(range(8)),
        input_tokens=[0, 512, 0, 0, 512, 512, 0, 512],
        output_tokens=None,
        block_ids=[[], [0], [], [], [1], [2], [], [3]],
    )
    trace = open_trace(table, on_error="skip")
    kept = [time for batch in trace.batches() for time in batch["arrival_ns"].to_pylist()]
    assert list(trace.rejected.rows) == [1, 3, 4, 7]
    assert [trace.rejected.number_of(row) for row in range(len(kept))] == [time + 1 for time in kept]
