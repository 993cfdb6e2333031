"""Each rule of the schema: the message names file, row, field, value and rule."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import TraceError
from kvbench.trace import open_trace, recut
from kvbench.trace.blocksize import Interval, fitting_block_tokens, id_count
from kvbench.trace.schema import TraceFacts

BROKEN = {
    "null arrival": ({"arrival_ns": [0, None, 5]}, "row 2, arrival_ns = None: must not be null"),
    "null length": ({"input_tokens": [512, None, 1024]}, "row 2, input_tokens = None: must not be null"),
    "null ids": ({"block_ids": [[0], None, [0, 2]]}, "row 2, block_ids = None: must not be null"),
    "null entry": ({"block_ids": [[0], [0, None], [0, 2]]}, "row 2, block_ids = None: entry 2 of the list is null"),
    "null answer entry": (
        {"output_token_ids": [[1], None, [None]]},
        "row 3, output_token_ids = None: entry 1 of the list is null",
    ),
    "negative time": ({"arrival_ns": [-5, 0, 0]}, "row 1, arrival_ns = -5: must not be negative"),
    "negative pause": ({"think_time_ns": [None, 1, -1]}, "row 3, think_time_ns = -1: must not be negative"),
    "order": (
        {"arrival_ns": [0, 5000, 4]},
        "row 3, arrival_ns = 4: rows must be in order of arrival, and an earlier row has 5,000",
    ),
    "no tokens": (
        {"input_tokens": [512, 0, 1024]},
        "row 2, input_tokens = 0: a request must have at least one input token",
    ),
    "too many ids": (
        {"block_ids": [[0], [0, 1], [0, 2, 3, 4]]},
        "row 3, block_ids = 4 ids: 1,024 input tokens in blocks of 512 (tails counted: ceil) make 2",
    ),
    "tail rule": (
        {"block_ids": [[0], [0], [0, 2]]},
        "row 2, block_ids = 1 id: 513 input tokens in blocks of 512 (tails counted: ceil) make 2; "
        "--tail-rule floor would fit the rows so far",
    ),
    "block size": (
        {"input_tokens": [16, 17, 33], "block_ids": [[0], [0, 1], [0, 1, 2]]},
        "row 2, block_ids = 2 ids: 17 input tokens in blocks of 512 (tails counted: ceil) make 1; "
        "--block-tokens 16 would fit the rows so far",
    ),
    "repeat": (
        {"block_ids": [[0], [7, 7], [0, 2]]},
        "row 2, block_ids = 7: stands twice in the row, and an id of kind prefix names one place in a prompt",
    ),
    "original ids": (
        {"original_ids": [[1], [1, 2], [3]]},
        "row 3, original_ids = 1 id: there must be as many as block_ids, which has 2",
    ),
    "token count": (
        {"block_ids": None, "input_tokens": [1, 2, 3], "token_ids": [[1], [1, 2], [1, 2]]},
        "row 3, token_ids = 2 ids: there must be one for each input token, and input_tokens is 3",
    ),
    "negative id": (
        {"block_ids": pa.array([[0], [0, -1], [0, 2]], pa.list_(pa.int64()))},
        "row 2, block_ids = -1: entry 2 does not fit in uint64",
    ),
    "large token id": (
        {
            "block_ids": None,
            "input_tokens": [1, 1, 1],
            "token_ids": pa.array([[1], [2**32], [2]], pa.large_list(pa.uint64())),
        },
        "row 2, token_ids = 4294967296: entry 1 does not fit in uint32",
    ),
    "large length": (
        {"input_tokens": pa.array([512, 513, 2**40], pa.int64())},
        "row 3, input_tokens = 1099511627776: does not fit in uint32",
    ),
    "large time": (
        {"arrival_ns": pa.array([0, 1, 2**63], pa.uint64())},
        "row 3, arrival_ns = 9223372036854775808: does not fit in int64",
    ),
    "negative turn": ({"turn": pa.array([0, None, -1])}, "row 3, turn = -1: does not fit in uint32"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_told_with_file_row_field_and_value(make_table, save, tmp_path, case):
    columns, message = BROKEN[case]
    path = save(make_table(**columns), tmp_path / "bad.arrow", 2)
    with pytest.raises(TraceError) as caught:
        list(open_trace(path).batches())
    assert str(caught.value) == f"{path}, {message}"


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_row_can_be_skipped_and_is_counted(make_table, case):
    columns, message = BROKEN[case]
    trace = open_trace(make_table(**columns), on_error="skip")
    kept = sum(batch.num_rows for batch in trace.batches())
    assert kept == 3 - trace.rejected.count
    assert trace.rejected.count >= 1
    assert f"table, {message}".split("; --")[0] in trace.rejected.examples[0]


def test_the_first_bad_row_is_told_whatever_rule_it_breaks(make_table):
    columns = {
        "arrival_ns": pa.array([0, -3, 5]),
        "input_tokens": pa.array([512, 513, -1]),
        "block_ids": pa.array([[0], [1, 1], [-1]], pa.list_(pa.int64())),
    }
    with pytest.raises(TraceError, match=r"row 2, arrival_ns = -3"):
        list(open_trace(make_table(**columns)).batches())
    trace = open_trace(make_table(**columns), on_error="skip")
    assert [batch.num_rows for batch in trace.batches()] == [1]
    assert trace.rejected.count == 2
    assert [text.split(":")[0] for text in trace.rejected.examples] == [
        "table, row 2, arrival_ns = -3",
        "table, row 3, input_tokens = -1",
    ]


def test_a_row_out_of_order_that_is_skipped_does_not_move_the_clock(make_table):
    times = [5, 100, -1, 6, 100, 99, 101]
    table = make_table(arrival_ns=times, input_tokens=[512] * 7, output_tokens=None, block_ids=[[0]] * 7)
    for max_rows in (1, 2, 3, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recut, "MAX_ROWS", max_rows)
            trace = open_trace(table, on_error="skip")
            kept = [time for batch in trace.batches() for time in batch.column("arrival_ns").to_pylist()]
        assert kept == [5, 100, 100, 101]
        assert trace.rejected.count == 3


def test_only_a_few_skipped_rows_are_told_and_all_are_counted(make_table):
    count = 20
    table = make_table(arrival_ns=[0] * count, input_tokens=[0] * count, output_tokens=None, block_ids=[[]] * count)
    trace = open_trace(table, on_error="skip")
    assert list(trace.batches()) == []
    assert (trace.rejected.count, len(trace.rejected.examples)) == (count, 5)
    assert trace.rejected.examples[4].startswith("table, row 5, input_tokens = 0")


def test_without_a_block_size_the_sizes_that_fit_are_told(make_table):
    table = make_table(TraceFacts(), input_tokens=[30, 16, 70], block_ids=[[0, 1], [0], [0, 1, 2, 3]])
    with pytest.raises(TraceError) as caught:
        list(open_trace(table).batches())
    assert str(caught.value) == (
        "table: the file does not say its block size; give it with --block-tokens "
        "(the first 3 rows fit --block-tokens from 18 to 23 with --tail-rule ceil "
        "or --block-tokens 15 with --tail-rule floor)"
    )


def test_without_a_block_size_rows_that_fit_none_are_told(make_table):
    table = make_table(TraceFacts(), input_tokens=[10, 10, 10], block_ids=[[0], [0, 1, 2, 3, 4, 5, 6], [0]])
    with pytest.raises(TraceError, match=r"no block size fits the first 3 rows"):
        list(open_trace(table).batches())


@pytest.mark.parametrize(("tokens", "ids"), [(1, 1), (512, 1), (513, 2), (1536, 3), (1537, 4), (2048, 4)])
def test_the_number_of_ids_counts_the_partial_last_block(tokens, ids):
    assert id_count(np.array([tokens]), 512, "ceil").tolist() == [ids]


def test_the_same_prompt_has_fewer_ids_where_tails_have_none():
    assert id_count(np.array([33]), 16, "ceil").tolist() == [3]
    assert id_count(np.array([33]), 16, "floor").tolist() == [2]


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 6)), min_size=1, max_size=5),
    st.sampled_from(["ceil", "floor"]),
)
def test_the_interval_of_block_sizes_is_what_trying_all_of_them_gives(rows, rule):
    tokens, counts = (np.array(values, np.int64) for values in zip(*rows, strict=True))
    fits = [size for size in range(1, 200) if np.array_equal(id_count(tokens, size, rule), counts)]
    interval = fitting_block_tokens(tokens, counts, rule)
    if not fits:
        assert interval is None
    else:
        assert interval == Interval(fits[0], None if fits[-1] == 199 else fits[-1])


def test_content_ids_may_stand_twice_in_a_row(make_table):
    table = make_table(TraceFacts(block_tokens=512, id_kind="content"), block_ids=[[0], [7, 7], [0, 2]])
    assert [batch.num_rows for batch in open_trace(table).batches()] == [3]


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("max_rows", [1, 2, 100])
def test_ids_that_are_said_to_be_dense_must_be(make_table, on_error, max_rows):
    facts = TraceFacts(block_tokens=512, dense=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recut, "MAX_ROWS", max_rows)
        assert sum(batch.num_rows for batch in open_trace(make_table(facts)).batches()) == 3
        table = make_table(facts, block_ids=[[0], [0, 2], [0, 1]])
        with pytest.raises(TraceError, match=r"row 2, block_ids = 2: .* dense, so a new id here must be 1"):
            list(open_trace(table, on_error=on_error).batches())
