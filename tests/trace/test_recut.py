"""Batches are cut by the content of the rows, however they came in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.trace import recut
from kvbench.trace.recut import Recutter, split


def batch_of(lengths: list[int]) -> pa.RecordBatch:
    lists = [[row] * length for row, length in enumerate(lengths)]
    return pa.RecordBatch.from_arrays(
        [pa.array(range(len(lengths)), pa.int64()), pa.array(lists, pa.list_(pa.uint64()))], ["row", "ids"]
    )


def expected_cuts(lengths: list[int], max_rows: int, max_ids: int) -> list[int]:
    sizes: list[list[int]] = []
    for length in lengths:
        if sizes and len(sizes[-1]) < max_rows and sum(sizes[-1]) + length <= max_ids:
            sizes[-1].append(length)
        else:
            sizes.append([length])
    return [len(size) for size in sizes]


@given(
    lengths=st.lists(st.integers(0, 9), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=10),
    max_rows=st.integers(1, 6),
    max_ids=st.integers(1, 12),
)
def test_the_cut_depends_on_the_rows_alone(lengths, cuts, max_rows, max_ids):
    whole = batch_of(lengths)
    edges = sorted({0, len(lengths), *(cut for cut in cuts if cut < len(lengths))})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recut, "MAX_ROWS", max_rows)
        patch.setattr(recut, "MAX_IDS", max_ids)
        cutter, out = Recutter(), []
        for first, last in pairwise(edges):
            out += cutter.push(whole.slice(first, last - first))
        out += cutter.flush()
        pieces = list(split(whole))
    wanted = expected_cuts(lengths, max_rows, max_ids)
    assert [batch.num_rows for batch in out] == wanted
    assert [piece.num_rows for piece in pieces] == wanted
    if out:
        assert pa.Table.from_batches(out).equals(pa.Table.from_batches([whole]))


def test_a_batch_that_fits_is_given_on_without_a_copy():
    batch = batch_of([1, 2, 3])
    cutter = Recutter()
    out = [*cutter.push(batch), *cutter.flush()]
    assert len(out) == 1
    given_on, original = (b.column("ids").values.buffers()[1].address for b in (out[0], batch))
    assert given_on == original


def test_lists_that_are_null_count_as_empty():
    batch = pa.RecordBatch.from_arrays([pa.array([[1], None, [2, 3]], pa.list_(pa.uint64()))], ["ids"])
    assert [piece.num_rows for piece in split(batch)] == [3]
    assert np.concatenate([piece.column("ids").flatten().to_numpy() for piece in split(batch)]).tolist() == [1, 2, 3]
