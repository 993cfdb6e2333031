"""Made matrices of times, as a timed replay would hand them over."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvbench.replays.order import COUNTS
from kvbench.replays.timecolumns import DONE, MISSING, STATUSES, TIMES
from kvbench.replays.timedfacts import LinkFacts, RunFacts, WorkerFacts
from kvbench.results.columns import RequestColumns
from kvbench.results.timed import TimedTotals

Int64s = npt.NDArray[np.int64]
MS = 1_000_000
SECOND = 1_000 * MS


def times_of(rows: list[dict[str, Any]]) -> Int64s:
    """A row a request: ``arrival``, its parts ``queue``, ``fetch`` and ``prefill``, ``decode`` (all 0) in nanoseconds,
    ``output`` tokens (1), ``status``, and columns of the matrix by name."""
    return np.array([_row(**row) for row in rows], np.int64).reshape(len(rows), len(TIMES))


def _row(
    arrival: int = 0,
    queue: int = 0,
    fetch: int = 0,
    prefill: int = 0,
    decode: int = 0,
    output: int = 1,
    status: str = "done",
    **columns: int,
) -> list[int]:
    values = dict.fromkeys(TIMES, MISSING)
    values |= {"arrival_ns": arrival, "status": STATUSES.index(status), "computed_tokens": 0, "preemptions": 0}
    values |= {"declined_blocks": 0, "readmitted_blocks": 0, "generated_tokens": 0}
    if values["status"] == DONE:
        first = arrival + queue + fetch + prefill
        values |= {"queue_ns": queue, "fetch_ns": fetch, "prefill_ns": prefill, "first_token_ns": first}
        values |= {"admitted_ns": arrival, "end_ns": first + decode, "generated_tokens": output}
    values |= columns
    return [values[name] for name in TIMES]


def columns_of(times: Int64s, input_tokens: int = 10, hit_blocks: int = 0) -> RequestColumns:
    """What is known of these requests besides: each has so many tokens, and so many blocks of one token that hit."""
    count = len(times)
    batch = pa.record_batch({"arrival_ns": times[:, 0], "input_tokens": pa.array([input_tokens] * count, pa.uint32())})
    rows = np.zeros((count, len(COUNTS)), np.int32)
    tokens, zeros = np.full(count, input_tokens), np.zeros(count, np.int64)
    counts = {name: rows[:, at] for at, name in enumerate(COUNTS)}
    hit = np.full(count, hit_blocks)
    return RequestColumns(batch, 1, rows, counts, tokens, zeros, tokens, tokens, hit, zeros, None, times=times)


def totals_of(rows: list[dict[str, Any]], *, batch: int = 1_000, **settings: Any) -> TimedTotals:
    """The totals of these requests, taken in so many at a time."""
    totals = TimedTotals(**settings)
    times = times_of(rows)
    for first in range(0, len(rows), batch):
        piece = times[first : first + batch]
        totals.add(columns_of(piece), piece, np.arange(first, first + len(piece)))
    return totals


def facts(end_ns: int, workers: list[WorkerFacts] | None = None, links: list[LinkFacts] | None = None) -> RunFacts:
    """A run that ended because all was done."""
    return RunFacts(end_ns, "all requests done", workers or [], links or [])


def record_of(rows: list[dict[str, Any]], end_ns: int = 0, **settings: Any) -> dict[str, Any]:
    """The record of these requests; settings as for :func:`totals_of`."""
    return totals_of(rows, **settings).record(facts(end_ns))
