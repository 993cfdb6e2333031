"""What is in a trace: its arrivals, its lengths, the reuse there is to win, and what looks odd.

One pass over the rows, next to a replay with infinite cache. Memory grows with rows (a few bytes
each) and distinct blocks.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.config import RunConfig
from kvbench.replays.engine import Engine
from kvbench.replays.plan import make_plan
from kvbench.results.blockuse import BlockUse
from kvbench.results.columns import RequestColumns
from kvbench.results.rates import ratio
from kvbench.results.totals import Totals
from kvbench.trace.columns import numbers, validity

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.plugins import Registry
    from kvbench.trace.reader import Trace

    Int64s = npt.NDArray[np.int64]

PERCENTILES = (50, 90, 99)
TIED_SHARE = 0.5
"""From this share of equal neighbouring arrivals on, ties are a remark."""


def inspect_trace(
    trace: Trace, registry: Registry, *, progress: Callable[[int, int | None], None] | None = None
) -> dict[str, Any]:
    """Facts, arrivals, lengths, reuse and remarks of ``trace`` as plain values.

    Partial last blocks count wherever they have ids (``tails = keep``). Figures of reuse are None
    for a trace without ids.
    """
    tails = "keep" if trace.ids == "block_ids" and trace.facts.tail_rule == "ceil" else "drop"
    plan = make_plan(RunConfig(tails=tails), registry, trace)  # type: ignore[arg-type]
    engine = Engine(plan, trace)
    totals = Totals(1)
    use = BlockUse(trace.facts, dense=engine.keyed.dense)
    arrivals, inputs, outputs = _Values(), _Values(), _Values()
    silent = _Silent()
    sessions: set[str] = set()
    done, rows = 0, trace.rows
    for served in engine.run():
        batch = served.batch
        totals.add(RequestColumns.of(served, trace.facts.block_tokens))
        arrivals.add(numbers(batch.column("arrival_ns")))
        inputs.add(numbers(batch.column("input_tokens")))
        if "output_tokens" in batch.schema.names:
            outputs.add(numbers(batch.column("output_tokens").drop_null()))
            silent.note(batch.column("output_tokens"), done)
        if "session_id" in batch.schema.names:
            sessions.update(batch.column("session_id").drop_null().unique().to_pylist())
        if engine.keyed.database is not None:
            use.add(served, done)
        done += batch.num_rows
        if progress is not None:
            progress(done, rows)
    has_ids = trace.ids is not None
    gaps = np.diff(arrivals.all())
    report: dict[str, Any] = {
        "trace": {**dataclasses.asdict(trace.facts), "name": trace.name, "digest": trace.digest, "ids": trace.ids},
        "rows": done,
        "rejected": trace.rejected.count,
        "rejected_examples": trace.rejected.examples,
        "columns": list(trace.schema.names),
        "sessions": len(sessions) if "session_id" in trace.schema.names else None,
        "arrivals": _arrivals(arrivals.all(), gaps),
        "input_tokens": inputs.summary(),
        "output_tokens": outputs.summary(),
        "tails": tails,
        "infinite_rates": totals.rates(totals.infinite, known=has_ids),
        "blocks": use.summary(totals) if has_ids else None,
    }
    report["remarks"] = _remarks(report, gaps, silent, use, trace.rejected.number_of)
    return report


class _Values:
    """A column of numbers over the whole trace."""

    def __init__(self) -> None:
        self._parts: list[npt.NDArray[Any]] = []

    def add(self, values: npt.NDArray[Any]) -> None:
        self._parts.append(np.array(values))

    def all(self) -> Int64s:
        if not self._parts:
            return np.zeros(0, np.int64)
        return np.concatenate(self._parts).astype(np.int64)

    def summary(self) -> dict[str, float | int] | None:
        """Sum, mean, extremes and percentiles (linear interpolation); None without values."""
        values = self.all()
        if len(values) == 0:
            return None
        points = np.percentile(values, PERCENTILES)
        return {
            "count": len(values),
            "sum": int(values.sum()),
            "mean": int(values.sum()) / len(values),
            "min": int(values.min()),
            **{f"p{point}": float(value) for point, value in zip(PERCENTILES, points, strict=True)},
            "max": int(values.max()),
        }


class _Silent:
    """Counts the rows without output tokens, and notes the first (from 0); null is unknown, not none."""

    def __init__(self) -> None:
        self.rows = 0
        self.first = 0

    def note(self, column: pa.Array, first_row: int) -> None:
        found = np.flatnonzero((numbers(column) == 0) & validity(column))
        if len(found) and not self.rows:
            self.first = first_row + int(found[0])
        self.rows += len(found)


def _arrivals(arrivals: Int64s, gaps: Int64s) -> dict[str, Any]:
    if len(arrivals) == 0:
        return {"first_ns": None, "last_ns": None, "span_ns": None, "distinct": 0, "ties": 0, "gap_ns": None}
    span = int(arrivals[-1] - arrivals[0])
    return {
        "first_ns": int(arrivals[0]),
        "last_ns": int(arrivals[-1]),
        "span_ns": span,
        "requests_per_s": ratio(len(arrivals) * 1e9, span),
        "distinct": int((gaps != 0).sum()) + 1,
        "ties": int((gaps == 0).sum()),
        "gap_ns": None
        if len(gaps) == 0
        else {"min": int(gaps.min()), "p50": float(np.median(gaps)), "max": int(gaps.max())},
    }


def _remarks(
    report: dict[str, Any], gaps: Int64s, silent: _Silent, use: BlockUse, number_of: Callable[[int], int]
) -> list[str]:
    """What a reader of results should know, with the rows of the file (counted from 1) to look at.

    ``number_of`` gives the number in the file of a row that was not left out (from 0).
    """
    remarks = []
    ties = report["arrivals"]["ties"]
    if len(gaps) and ties >= TIED_SHARE * len(gaps):
        row = number_of(int(np.flatnonzero(gaps == 0)[0]) + 1)
        remarks.append(
            f"{ties:,} of {len(gaps):,} neighbouring rows ({ties / len(gaps):.0%}) arrive at the same time, row {row} "
            "first: the clock was coarse, so a timed replay has bursts that the recorded service may not have had"
        )
    if silent.rows:
        remarks.append(f"{silent.rows:,} rows have no output tokens, row {number_of(silent.first)} first")
    remarks += use.remarks(number_of)
    rate = report["infinite_rates"]["block"]
    if rate in (0.0, 1.0):
        remarks.append(f"the infinite-cache rate is exactly {rate:g}: check the block size and what the ids stand for")
    if report["blocks"] is None:
        remarks.append("no block_ids and no token_ids: reuse is unknown, neither 0 nor 1")
    return remarks
