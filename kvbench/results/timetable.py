"""The columns that a timed replay adds to the ``requests`` table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.replays.timecolumns import MISSING, STATUSES, TIME_COLUMNS, TIMES
from kvbench.results.latency import request_latencies, times_by_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

TRACE_ARRIVAL = "trace_arrival_ns"

LATENCY_COLUMNS: Mapping[str, str] = {
    "ttft_ns": "first_token_ns - arrival_ns",
    "tpot_ns": "(end_ns - first_token_ns) / (generated_tokens - 1); null with one token",
    "e2e_ns": "end_ns - arrival_ns",
}
"""Columns that follow from the others."""

TABLE_COLUMNS: Mapping[str, str] = {name: text for name, text in TIME_COLUMNS.items() if name != "arrival_ns"}
"""Columns of the matrix of times that are added; ``arrival_ns`` is there already, and takes its values from it."""

TIME_FIELDS = [
    *(pa.field(name, pa.string() if name == "status" else pa.int64()) for name in TABLE_COLUMNS),
    *(pa.field(name, pa.float64() if name == "tpot_ns" else pa.int64()) for name in LATENCY_COLUMNS),
]


def time_arrays(times: Int64s) -> list[pa.Array]:
    """The arrays of :data:`TIME_FIELDS` for the rows of a matrix of times."""
    named = times_by_name(times)
    arrays = [_nullable(named[name]) for name in TABLE_COLUMNS if name != "status"]
    arrays.append(pa.array(STATUSES).take(pa.array(times[:, TIMES.index("status")])))
    ttft, tpot, e2e = request_latencies(times)
    return [*arrays, _nullable(ttft), pa.array(tpot, mask=np.isnan(tpot)), _nullable(e2e)]


def _nullable(values: Int64s) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == MISSING)
