"""Rows put aside for sorting come back by arrival, ties as they came, from memory and from disk."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbench.trace.spool import Spool


def batch(arrivals: list[int], start: int) -> pa.RecordBatch:
    rows = pa.array(np.arange(start, start + len(arrivals)))
    columns = {"arrival_ns": pa.array(arrivals, pa.int64()), "row": rows}
    if start % 2:
        columns["ids"] = pa.array([[row] * (row % 3) for row in rows.to_pylist()], pa.list_(pa.uint64()))
    return pa.RecordBatch.from_pydict(columns)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), max_size=9), max_size=12), st.sampled_from([1, 200, 10**6]))
def test_rows_come_back_by_arrival_whatever_the_runs(batches: list[list[int]], run_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr("kvbench.trace.spool.RUN_BYTES", run_bytes)
        patch.setattr("kvbench.trace.spool.PIECE_BYTES", 40)
        with Spool(Path(folder)) as spool:
            rows = 0
            for arrivals in batches:
                spool.add(batch(arrivals, rows))
                rows += len(arrivals)
            found = [row for piece in spool.batches() for row in piece.to_pylist()]
            assert list(Path(folder).iterdir()) == []
    flat = [arrival for arrivals in batches for arrival in arrivals]
    order = sorted(range(len(flat)), key=flat.__getitem__)
    assert [row["row"] for row in found] == order
    assert [row["arrival_ns"] for row in found] == sorted(flat)
    assert spool.steps_back == sum(after < before for before, after in pairwise(flat))
    assert (spool.rows, spool.earliest_ns, spool.latest_ns) == (len(flat), min(flat, default=0), max(flat, default=0))
    for row in found:
        assert row.get("ids") in (None, [row["row"]] * (row["row"] % 3))
