"""The compiled helpers agree with plain Python on any input, and refuse what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.trace.rows import Interner, first_repeat_rows, first_undense

U64 = st.integers(0, 2**64 - 1)
FEW = st.integers(0, 20)


def offsets_of(rows: list[list[int]]) -> np.ndarray:
    return np.cumsum([0, *map(len, rows)], dtype=np.int64)


def flat(rows: list[list[int]]) -> np.ndarray:
    return np.array([value for row in rows for value in row], dtype=np.uint64)


@given(st.lists(st.lists(FEW | U64, max_size=30), max_size=20))
def test_a_row_is_marked_exactly_when_it_holds_a_value_twice(rows):
    bad = np.full(len(rows), 7, np.uint8)
    count = first_repeat_rows(flat(rows), offsets_of(rows), bad)
    wanted = [len(set(row)) < len(row) for row in rows]
    assert bad.tolist() == wanted
    assert count == sum(wanted)


def test_a_long_unsorted_row_with_its_repeat_at_the_ends_is_found():
    row = [5, *range(100_000, 5, -1), 5]
    bad = np.zeros(2, np.uint8)
    assert first_repeat_rows(flat([[3, 1, 2], row]), offsets_of([[3, 1, 2], row]), bad) == 1
    assert bad.tolist() == [0, 1]


@pytest.mark.parametrize("offsets", [[0, 4], [-1, 2], [2, 1], [0, 2**40]])
def test_offsets_outside_the_values_are_refused(offsets):
    with pytest.raises(ValueError, match="offsets of row 0"):
        first_repeat_rows(np.arange(3, dtype=np.uint64), np.array(offsets, np.int64), np.zeros(1, np.uint8))


def test_buffers_of_the_wrong_size_are_refused():
    values = np.arange(3, dtype=np.uint64)
    with pytest.raises(ValueError, match="offsets is empty"):
        first_repeat_rows(values, np.zeros(0, np.int64), np.zeros(0, np.uint8))
    with pytest.raises(ValueError, match="out_bad has 3 bytes for 1 rows"):
        first_repeat_rows(values, np.array([0, 1]), np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="out has room for 2 of 3"):
        Interner().intern(values, np.zeros(2, np.uint64))


@given(st.lists(st.lists(FEW | U64, max_size=50), max_size=8))
def test_interning_numbers_values_like_a_dict_does(batches):
    interner, numbers = Interner(), {}
    for batch in batches:
        out = np.zeros(len(batch), np.uint64)
        interner.intern(np.array(batch, np.uint64), out)
        assert out.tolist() == [numbers.setdefault(value, len(numbers)) for value in batch]
        assert len(interner) == len(numbers)


def test_interning_goes_on_while_the_table_grows():
    values = np.random.default_rng(1).integers(0, 2**63, 50_000, dtype=np.uint64)
    interner, out = Interner(), np.zeros(50_000, np.uint64)
    interner.intern(values, out)
    again = np.zeros_like(out)
    interner.intern(values, again)
    assert out.tolist() == again.tolist()
    assert len(interner) == len(np.unique(values)) == int(out.max()) + 1


@given(st.lists(st.integers(0, 6), max_size=20), st.integers(0, 3))
def test_the_dense_claim_is_checked_like_a_plain_loop_does(values, known):
    wanted, count = -1, known
    for index, value in enumerate(values):
        if value > count:
            wanted = index
            break
        count = max(count, value + 1)
    assert first_undense(np.array(values, np.uint64), known) == (wanted, count)
