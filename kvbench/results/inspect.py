"""What is in a trace: its arrivals, its lengths, the reuse there is to win, and what looks odd.

One pass over the rows, next to a replay with infinite cache and the stack of an LRU cache. Rows are streamed;
what is kept is 24 bytes a row (arrival, lengths, think time), some 130 bytes a distinct block, and names of
sessions and tenants.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.config import RunConfig
from kvbench.replays.distances import ExactSums
from kvbench.replays.engine import Engine
from kvbench.replays.onepass import OnePass
from kvbench.replays.plan import make_plan
from kvbench.results.bins import by_bit_length
from kvbench.results.blocksizes import BlockSizes
from kvbench.results.blockuse import BlockUse
from kvbench.results.columns import RequestColumns
from kvbench.results.overtime import arrival_facts, windows
from kvbench.results.result import misses
from kvbench.results.sharing import Sessions, TenantHits, ThinkTimes
from kvbench.results.sources import HitSources
from kvbench.results.totals import Totals
from kvbench.trace.columns import numbers, validity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.plugins import Registry
    from kvbench.replays.engine import Served
    from kvbench.replays.plan import Plan
    from kvbench.trace.reader import Trace

    Int64s = npt.NDArray[np.int64]

PERCENTILES = (50, 90, 99)
TIED_SHARE = 0.5
"""From this share of equal neighbouring arrivals on, ties are a remark."""
EXTREME_SHARE, FEW_ROWS = 0.05, 20
"""From this share of the rows at the first or last arrival on, that is a remark; in a trace that is not tiny."""


def inspect_trace(
    trace: Trace,
    registry: Registry,
    config: RunConfig | None = None,
    *,
    block_sizes: Sequence[int] | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Facts, arrivals, lengths, reuse, sharing and remarks of ``trace`` as plain values.

    ``config`` says how prompts become blocks; without it, partial last blocks count wherever they have ids
    (``tails = keep``). Figures of reuse are None for a trace without ids. ``block_sizes`` in tokens are those to
    try, other than the usual ones.
    """
    if config is None:
        has_tails = trace.ids == "block_ids" and trace.facts.tail_rule == "ceil"
        config = RunConfig(tails="keep" if has_tails else "drop")
    plan = make_plan(config, registry, trace)
    found = _Pass(trace, plan, BlockSizes(trace, plan, block_sizes))
    rows = trace.rows
    for done in found.run():
        if progress is not None:
            progress(done, rows)
    has_ids = trace.ids is not None
    arrivals, inputs = found.arrivals.all(), found.inputs
    lifetimes = found.use.lifetimes() if has_ids else (None, None)
    sessions = found.sessions.summary()
    if sessions is not None and has_ids:
        sessions["hit_blocks"] = found.sources.sessions()
    report: dict[str, Any] = {
        "trace": {**dataclasses.asdict(trace.facts), "name": trace.name, "digest": trace.digest, "ids": trace.ids},
        "rows": found.rows,
        "rejected": trace.rejected.count,
        "rejected_examples": trace.rejected.examples,
        "columns": list(trace.schema.names),
        "arrivals": arrival_facts(arrivals),
        "over_time": windows(arrivals, inputs.all(), *lifetimes),
        "input_tokens": inputs.summary(),
        "output_tokens": found.outputs.summary(),
        "sessions": sessions,
        "think_time_ns": _summary(found.thinks.values()),
        "tenants": found.tenants.summary(),
        "tails": config.tails,
        "infinite_rates": found.totals.rates(found.totals.infinite, known=has_ids),
        "misses": misses(found.totals, has_ids=has_ids, has_seen=has_ids),
        "hit_sources": found.sources.summary() if has_ids else None,
        "blocks": found.use.summary(found.totals) if has_ids else None,
        "reuse_distance_blocks": found.reuse_distances() if has_ids else None,
        "reuse_time_ns": by_bit_length(np.array(found.onepass.reuse_times)) if has_ids else None,
        "block_sizes": found.block_sizes.summary(),
    }
    report["remarks"] = _remarks(report, np.diff(arrivals), found, trace.rejected.number_of)
    return report


class _Pass:
    """One pass over ``trace``, and what it gathers."""

    def __init__(self, trace: Trace, plan: Plan, block_sizes: BlockSizes) -> None:
        self._engine = Engine(plan, trace)
        self._block_tokens = trace.facts.block_tokens
        dense = self._engine.keyed.dense
        self._sums = ExactSums()
        self.onepass = OnePass(self._sums, block_tokens=self._block_tokens or 0, dense=dense)
        self.totals = Totals(1)
        self.use = BlockUse(trace.facts, dense=dense)
        self.arrivals, self.inputs, self.outputs = _Values(), _Values(), _Values()
        self.silent = _Silent()
        self.sessions = Sessions()
        self.sources = HitSources(self._block_tokens)
        self.tenants = TenantHits(self._block_tokens)
        self.thinks = ThinkTimes()
        self.block_sizes = block_sizes
        self.rows = 0

    def run(self) -> Iterator[int]:
        """Serve the whole trace; yields the rows done after each batch."""
        for served in self._engine.run():
            columns = RequestColumns.of(served, self._block_tokens)
            self._add(served, columns)
            self.rows += served.batch.num_rows
            yield self.rows

    def _add(self, served: Served, columns: RequestColumns) -> None:
        batch, arrivals = served.batch, numbers(served.batch.column("arrival_ns"))
        self.totals.add(columns)
        self.arrivals.add(arrivals)
        self.inputs.add(numbers(batch.column("input_tokens")))
        if "output_tokens" in batch.schema.names:
            self.outputs.add(numbers(batch.column("output_tokens").drop_null()))
            self.silent.note(batch.column("output_tokens"), self.rows)
        sessions = self.sessions.add(columns, self.rows)
        self.thinks.add(columns)
        if self._engine.keyed.database is None:
            return
        ids = self.use.add(served, self.rows)
        self.sources.add(columns, sessions, ids)
        self.tenants.add(columns)
        self.block_sizes.add(served, columns)
        keys = served.keys
        self.onepass.run(keys.keys, keys.offsets, keys.cacheable, columns.input_tokens, arrivals)

    def reuse_distances(self) -> list[dict[str, int]]:
        """Blocks by the different blocks that were used since they were."""
        counts = np.zeros(64, np.int64)
        self._sums.distance_counts(counts)
        return by_bit_length(counts)


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
        return _summary(self.all())


def _summary(values: Int64s) -> dict[str, float | int] | None:
    """Sum, mean, extremes and percentiles (linear interpolation); None without values."""
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


def _remarks(report: dict[str, Any], gaps: Int64s, found: _Pass, number_of: Callable[[int], int]) -> list[str]:
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
    remarks += _at_the_extreme(report["arrivals"].get("extreme"), report["rows"], number_of)
    silent = found.silent
    if silent.rows:
        remarks.append(f"{silent.rows:,} rows have no output tokens, row {number_of(silent.first)} first")
    remarks += [*found.use.remarks(number_of), *found.sessions.remarks(number_of)]
    rate = report["infinite_rates"]["block"]
    if rate in (0.0, 1.0):
        remarks.append(f"the infinite-cache rate is exactly {rate:g}: check the block size and what the ids stand for")
    if report["blocks"] is None:
        remarks.append("no block_ids and no token_ids: reuse is unknown, neither 0 nor 1")
    return remarks


def _at_the_extreme(extreme: dict[str, Any] | None, rows: int, number_of: Callable[[int], int]) -> list[str]:
    """Many rows at the first or the last time of all: what a tool writes for a time that it does not know."""
    if extreme is None or rows < FEW_ROWS or extreme["share"] < EXTREME_SHARE:
        return []
    first = 0 if extreme["which"] == "first" else rows - extreme["rows"]
    return [
        f"{extreme['rows']:,} of {rows:,} rows ({extreme['share']:.0%}) arrive at the {extreme['which']} time of all, "
        f"row {number_of(first)} first: that may stand for times that are not known"
    ]
