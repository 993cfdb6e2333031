"""Makes more of a trace, and says how close that came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.config import RunConfig
from kvbench.errors import ConfigError
from kvbench.replays.curve import CurvePass
from kvbench.replays.plan import make_plan
from kvbench.results.curverates import RateTable
from kvbench.results.like.conversations import NONE
from kvbench.results.like.fit import fit
from kvbench.results.like.made import LikeWorkload
from kvbench.results.rates import ratio
from kvbench.trace.reader import open_trace
from kvbench.trace.writer import TraceWriter, check_output

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from kvbench.plugins import Registry
    from kvbench.replays.plan import Plan
    from kvbench.results.like.fit import Fit
    from kvbench.trace.reader import Trace

    Int64s = npt.NDArray[np.int64]

SHARES = (0.01, 0.1, 0.5)
"""Capacities that are compared, as shares of the given trace's distinct blocks."""
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
PERCENTILES = (50, 90, 99)


def make_like(
    trace: Trace,
    output: str | Path,
    registry: Registry,
    *,
    seed: int = 0,
    rows: int | None = None,
    force: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Write ``rows`` requests like those of ``trace`` (as many by default) to ``output``.

    Returns figures of both: ``{"given": …, "made": …}``, the hit rates at the same capacities. Raises
    ConfigError for a trace that can be read only once, TraceError for one that nothing can be fitted to.
    """
    check_output(output)
    if rows is not None and rows < 1:
        raise ConfigError(f"--rows = {rows} is below 1")
    if not trace.rewindable:
        raise ConfigError(f"{trace.name} is read twice, and can be read only once; save it to a file")
    plan = _plan(trace, registry)
    fitted = fit(trace, plan, progress)
    workload = LikeWorkload(seed, fitted, fitted.rows if rows is None else rows, trace.facts.source_name or trace.name)
    with TraceWriter(output, workload.schema, workload.facts, force=force) as writer:
        for batch in workload.batches():
            writer.write(batch)
    made = open_trace(output)
    made_plan = _plan(made, registry)
    capacities = np.unique([max(1, round(share * fitted.distinct_blocks)) for share in SHARES])
    return {
        "given": _figures(trace, plan, fitted, capacities),
        "made": _figures(made, made_plan, fit(made, made_plan), capacities),
    }


def _plan(trace: Trace, registry: Registry) -> Plan:
    """A plan under which partial last blocks count wherever they have ids."""
    tails = "keep" if trace.ids == "block_ids" and trace.facts.tail_rule == "ceil" else "drop"
    return make_plan(RunConfig(tails=tails), registry, trace)  # type: ignore[arg-type]


def _figures(trace: Trace, plan: Plan, fitted: Fit, capacities: Int64s) -> dict[str, Any]:
    outputs = fitted.output_tokens[fitted.output_tokens != NONE]
    bursts = len(fitted.burst_rows)
    return {
        "rows": fitted.rows,
        "requests_per_s": ratio(fitted.rows * 1e9, fitted.span_ns),
        "rows_a_burst": fitted.rows / bursts,
        "gap_cv": fitted.gap_cv,
        "input_tokens": _lengths(fitted.input_tokens),
        "output_tokens": _lengths(outputs),
        "later_turns_share": float(fitted.same_session.mean()) if fitted.has_sessions else None,
        **(_reuse(trace, plan, fitted, capacities) if fitted.has_ids else {}),
    }


def _lengths(values: Int64s) -> dict[str, float] | None:
    if len(values) == 0:
        return None
    points = np.percentile(values, PERCENTILES)
    return {
        "mean": float(values.mean()),
        **{f"p{point}": float(value) for point, value in zip(PERCENTILES, points, strict=True)},
    }


def _reuse(trace: Trace, plan: Plan, fitted: Fit, capacities: Int64s) -> dict[str, Any]:
    found = CurvePass(plan, trace)
    for _ in found.run():
        pass
    changes = found.changes()
    everything = int(changes[-1]) if len(changes) else 1
    table = RateTable(found)
    return {
        "infinite_rates": table.rates(np.array([everything]))[0],
        "lru_token_rates": [
            {"capacity_blocks": int(capacity), "token_rate": rates["token"]}
            for capacity, rates in zip(capacities, table.rates(capacities), strict=True)
        ],
        "prefixes": [
            {
                "depth": depth,
                "different_share": ratio(int(fitted.first_seen[depth - 1]), int(fitted.reached[depth - 1])),
            }
            for depth in DEPTHS
            if depth <= len(fitted.reached)
        ],
    }


def side_by_side(report: dict[str, Any]) -> Sequence[tuple[str, Any, Any, str]]:
    """Name, given and made value, and kind (``count``, ``number`` or ``share``) of each figure."""
    given, made = report["given"], report["made"]
    lines = [
        ("requests", given["rows"], made["rows"], "count"),
        ("requests/s", given["requests_per_s"], made["requests_per_s"], "number"),
        ("requests that arrive together", given["rows_a_burst"], made["rows_a_burst"], "number"),
        ("gaps: coefficient of variation", given["gap_cv"], made["gap_cv"], "number"),
    ]
    for name in ("input_tokens", "output_tokens"):
        if given[name] is not None and made[name] is not None:
            title = name.replace("_", " ")
            lines += [(f"{title}, {point}", given[name][point], made[name][point], "number") for point in given[name]]
    if given["later_turns_share"] is not None:
        lines.append(("later turns", given["later_turns_share"], made["later_turns_share"], "share"))
    if "infinite_rates" not in given:
        return lines
    for rate in ("token", "block"):
        rates = (given["infinite_rates"][rate], made["infinite_rates"][rate])
        lines.append((f"{rate} rate of an infinite cache", *rates, "share"))
    for one, other in zip(given["lru_token_rates"], made["lru_token_rates"], strict=True):
        title = f"token rate, LRU of {one['capacity_blocks']:,} blocks"
        lines.append((title, one["token_rate"], other["token_rate"], "share"))
    others = {each["depth"]: each["different_share"] for each in made["prefixes"]}
    for each in given["prefixes"]:
        title = f"different prefixes of {each['depth']} blocks a request"
        lines.append((title, each["different_share"], others.get(each["depth"]), "share"))
    return lines
