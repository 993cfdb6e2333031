"""A curve from configuration to result: the one path behind ``kvbench curve`` and :func:`kvbench.curve`."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.config import TELLS_OF_TIERS
from kvbench.errors import ConfigError
from kvbench.replays.curve import CurvePass
from kvbench.replays.plan import make_plan
from kvbench.results.bins import by_bit_length
from kvbench.results.capacities import chosen_capacities, wanted_capacities
from kvbench.results.curverates import METHOD, RateTable
from kvbench.results.curvetable import CURVE_SCHEMA, curve_batches, curve_rows
from kvbench.results.parquet import write_parquet
from kvbench.results.result import RESULT_VERSION, plugin_versions, request_counts, trace_facts, wall_clock_of
from kvbench.results.run import open_configured

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.replays.plan import Plan
    from kvbench.replays.sample import SampleChoice
    from kvbench.trace.reader import Trace, TraceSource

    Int64s = npt.NDArray[np.int64]
    Progress = Callable[[int, int | None], None]
    Clock = Callable[[], float]

NOT_OF_CURVES = (
    *("workers", "seen", "capacity", "belady", "order", "tiers", "preset", "recompute", "store_output"),
    "compute",
    *TELLS_OF_TIERS,
)
"""Keys of the run configuration that a curve has no use for."""
KNEE_RATE = "token"
KNEE_POINTS = 1_000
KNEE = (
    "the capacity where the token rate (block rate without a block size) is farthest above the straight line from the "
    f"first to the last change of the curve, over the logarithm of the capacity (Kneedle, Satopaa et al. 2011); "
    f"looked for at {KNEE_POINTS:,} capacities"
)


@dataclass(slots=True)
class CurveResult:
    """The outcome of ``curve``.

    ``manifest``    as of a replay.
    ``summary``     what was asked, the bound, the knee, the histograms, the sample.
    ``curve``       the rates at the chosen capacities: a dictionary each.
    ``wall_clock``  how long it took.
    """

    manifest: dict[str, Any]
    summary: dict[str, Any]
    curve: list[dict[str, Any]]
    wall_clock: dict[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from kvbench.results.notebook import curve_html

        return curve_html(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**self.manifest, "summary": self.summary, "curve": self.curve, "wall_clock": self.wall_clock}


def run_curve(
    config: RunConfig,
    registry: Registry,
    *,
    capacities: str | None = None,
    sample: SampleChoice | None = None,
    source: TraceSource | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> CurveResult:
    """Find the LRU hit rates of all capacities in one pass, and write what the configuration asks for.

    ``capacities``  to report, for example ``1k,10%,64GiB`` or ``1k..1M``; by default about twenty.
    ``sample``      look at some of the trace only.
    Others as of :func:`kvbench.results.run.run_replay`.
    """
    for name in (*NOT_OF_CURVES, "router", "policy", "events"):
        if getattr(config, name) != getattr(type(config)(), name):
            raise ConfigError(f"{name} has no effect on a curve, which is that of one LRU cache")
    trace = open_configured(config, source)
    plan = make_plan(config, registry, trace)
    wanted = wanted_capacities(capacities, plan.block_bytes)
    found = CurvePass(plan, trace, sample)
    with ExitStack() as stack:
        tables = [(config.output, CURVE_SCHEMA)] if config.output is not None else []
        writers = stack.enter_context(write_parquet(tables, force=config.force))
        done = 0
        started = clock() if clock is not None else 0.0
        for rows in found.run():
            done += rows
            if progress is not None:
                progress(done, trace.rows)
        changes = found.changes()
        table = RateTable(found)
        chosen = chosen_capacities(wanted, found.distinct, changes)
        summary = _summary(found, table, changes, trace)
        rows_chosen = curve_rows(table, chosen, plan.block_bytes)
        result = CurveResult(_manifest(plan, trace, registry, sample), summary, rows_chosen)
        if clock is not None:
            result.wall_clock = wall_clock_of(done, found.asked.blocks, clock() - started)
        for writer in writers:
            for batch in curve_batches(table, np.union1d(changes, chosen), plan.block_bytes):
                writer.write(batch)
            writer.finish({**result.manifest, "summary": result.summary})
    return result


def _manifest(plan: Plan, trace: Trace, registry: Registry, sample: SampleChoice | None) -> dict[str, Any]:
    config = {name: value for name, value in plan.to_dict(None).items() if name not in NOT_OF_CURVES}
    if sample is not None:
        config |= {"sample": sample.rate, "sample_by": sample.by, "sample_depth": sample.depth}
    return {
        "version": RESULT_VERSION,
        **plugin_versions([plan], registry),
        "config": dict(sorted({**config, "policy": "lru", "order": "tail-first"}.items())),
        "trace": trace_facts(trace),
    }


def _summary(found: CurvePass, table: RateTable, changes: Int64s, trace: Trace) -> dict[str, Any]:
    asked = found.asked
    last = int(changes[-1]) if len(changes) else None
    return {
        "requests": request_counts(asked.requests, trace),
        "tokens": {"input": asked.input_tokens},
        "blocks": {
            "asked": asked.blocks,
            "cacheable": asked.cacheable_blocks,
            "full": asked.full_blocks,
            "distinct": found.distinct,
        },
        "infinite_rates": table.rates(np.array([max(last or 1, 1)]))[0],
        "saturation_blocks": last,
        "knee": knee_of(table, changes),
        "reuse_distance_blocks": by_bit_length(found.reuse_distances()),
        "reuse_time_ns": by_bit_length(np.array(found.reuse_times())),
        "sample": _sample(found, trace),
    }


def knee_of(table: RateTable, changes: Int64s) -> dict[str, Any] | None:
    """The knee of a curve that changes at the rising capacities ``changes``; None where it has no two points."""
    if len(changes) < 2:
        return None
    first, last = int(changes[0]), int(changes[-1])
    capacities = np.unique(np.geomspace(first, last, KNEE_POINTS).round().astype(np.int64))
    rates = table.rates(capacities)
    name = KNEE_RATE if rates[-1][KNEE_RATE] else "block"
    values = np.array([row[name] for row in rates], dtype=np.float64)
    if values[-1] <= values[0]:
        return None
    height = (values - values[0]) / (values[-1] - values[0])
    along = np.log(capacities / first) / math.log(last / first)
    at = int(np.argmax(height - along))
    return {"capacity_blocks": int(capacities[at]), "rate": name, "value": float(values[at]), "definition": KNEE}


def _sample(found: CurvePass, trace: Trace) -> dict[str, Any] | None:
    if found.sampler is None:
        return None
    choice, counted = found.sampler.choice, found.counted
    return {
        "rate": choice.rate,
        "by": choice.by,
        "depth": choice.depth,
        "units": found.sampler.units,
        "all_units": found.sampler.all_units,
        "largest_unit_share": found.sampler.largest_share,
        "requests": counted.requests,
        "blocks": counted.blocks,
        "has_sessions": "session_id" in trace.schema.names,
        "error_bars": METHOD,
    }
