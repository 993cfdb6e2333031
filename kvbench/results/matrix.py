"""Several policies, routers and capacities over one trace, decoded once: the table that compares them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.replays.engine import Bound, Core, Served, count_distinct, keyed_trace, resolve_capacity, sees_future
from kvbench.replays.engine import wants_bound as wants_bound_of
from kvbench.replays.future import Future
from kvbench.replays.plan import make_plan
from kvbench.results.columns import RequestColumns
from kvbench.results.evenness import EVENNESS, evenness
from kvbench.results.parquet import check_parquet, write_parquet
from kvbench.results.rates import RATES
from kvbench.results.result import RESULT_VERSION, plugin_versions, request_counts, trace_facts, wall_clock_of
from kvbench.results.run import open_configured
from kvbench.results.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.replays.keyed import Keyed, KeyedTrace
    from kvbench.replays.plan import Plan
    from kvbench.trace.reader import TraceSource

COUNTED = ("hit_blocks", "stored_blocks", "evicted_blocks", "truncated_blocks")


@dataclass(slots=True)
class MatrixResult:
    """The outcome of a matrix: ``requests`` are those that arrived at each cell, with those rejected for breaking a
    rule of the schema, and ``cells`` has a record for each capacity, policy and router, in the order of the
    configuration; everything but ``wall_clock`` is equal for equal runs."""

    manifest: dict[str, Any]
    requests: dict[str, Any]
    cells: list[dict[str, Any]]
    wall_clock: dict[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from kvbench.results.notebook import matrix_html

        return matrix_html(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**self.manifest, "requests": self.requests, "cells": self.cells, "wall_clock": self.wall_clock}

    def best(self, capacity_blocks: int | None) -> set[tuple[str, str | None]]:
        """The policies and routers with the highest token rate at this capacity."""
        rates = {
            (c["policy"], c["router"]): c["rates"]["token"]
            for c in self.cells
            if c["capacity_blocks"] == capacity_blocks
        }
        known = [rate for rate in rates.values() if rate is not None]
        return {names for names, rate in rates.items() if known and rate == max(known)}


@dataclass(slots=True)
class Cell:
    """One policy and router at one capacity, and its sums so far."""

    plan: Plan
    core: Core
    totals: Totals

    def serve(self, item: Keyed, next_use: Any, belady: Any) -> None:
        """Serve one batch and add it up."""
        rows, _ = self.core.serve(item, next_use)
        served = Served(item.batch, item.keys, rows, belady)
        self.totals.add(RequestColumns.of(served, self.core.block_tokens, recompute=self.plan.config.recompute))


def run_matrix(
    config: RunConfig,
    registry: Registry,
    *,
    source: TraceSource | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    clock: Callable[[], float] | None = None,
) -> MatrixResult:
    """Replay a trace under every policy, router and capacity of ``config`` at once.

    The cells of a batch run side by side in threads, which changes no figure. Arguments as for
    :func:`kvbench.results.run.run_replay`.
    """
    if config.tiers is not None:
        raise ConfigError(
            "a matrix compares policies, routers and capacities of one tier; replay each stack of tiers by itself"
        )
    if config.events is not None:
        raise ConfigError("--events has no effect with several policies, routers or capacities; give one of each")
    trace = open_configured(config, source)
    if config.output is not None:
        check_parquet(config.output, force=config.force)
    plans = [make_plan(cell, registry, trace) for cell in config.cells()]
    keyed = keyed_trace(trace, plans)
    cells = _make_cells(plans, keyed)
    has_bound = wants_bound_of(plans[0], keyed)
    rows = trace.rows
    started = clock() if clock is not None else 0.0
    done = 0
    needs_future = has_bound or any(sees_future(plan) for plan in plans)
    with Future(keyed) if needs_future else nullcontext() as future, ThreadPoolExecutor(os.cpu_count()) as pool:
        bounds = _make_bounds(cells, keyed, future) if has_bound and future is not None else {}
        for item in keyed.batches():
            next_use = future.take(len(item.keys.keys)) if future is not None else None
            hits = {blocks: bound.serve(item, next_use) for blocks, bound in bounds.items() if next_use is not None}
            serving = [pool.submit(c.serve, item, next_use, hits.get(_pooled(c) or 0)) for c in cells]
            for served in serving:
                served.result()
            done += item.batch.num_rows
            if progress is not None:
                progress(done, rows)
    manifest = {
        "version": RESULT_VERSION,
        **plugin_versions(plans, registry),
        "config": _settings(config, plans),
        "trace": trace_facts(trace),
    }
    requests = request_counts(cells[0].totals.requests, trace)
    result = MatrixResult(manifest, requests, [_record(cell, has_bound=has_bound) for cell in cells])
    if clock is not None:
        asked = sum(cell.totals.counts["blocks"] for cell in cells)
        result.wall_clock = wall_clock_of(done * len(cells), asked, clock() - started)
    if config.output is not None:
        _write(config, result)
    return result


def _settings(config: RunConfig, plans: list[Plan]) -> dict[str, Any]:
    """The configuration that the cells share, and lists of what they differ in."""
    settings = plans[0].to_dict(None)
    settings |= {"capacity": config.capacity, "policy": [plan.policy_name for plan in plans]}
    if isinstance(config.router, list):
        settings |= {"router": [plan.router_name for plan in plans], "index": [plan.index_name for plan in plans]}
    return settings


def _make_cells(plans: list[Plan], keyed: KeyedTrace) -> list[Cell]:
    distinct = count_distinct(keyed) if any(p.capacity_share is not None for p in plans) else None
    return [
        Cell(plan, Core(plan, keyed, resolve_capacity(plan, keyed, distinct)), Totals(plan.config.workers))
        for plan in plans
    ]


def _make_bounds(cells: list[Cell], keyed: KeyedTrace, future: Future) -> dict[int, Bound]:
    """A bound for each capacity, shared by the policies."""
    sizes = {size for cell in cells if (size := _pooled(cell)) is not None}
    return {size: Bound(keyed, size, future.requests) for size in sorted(sizes)}


def _pooled(cell: Cell) -> int | None:
    blocks = cell.core.capacity_blocks
    return None if blocks is None else blocks * cell.plan.config.workers


def _record(cell: Cell, *, has_bound: bool) -> dict[str, Any]:
    totals, plan = cell.totals, cell.plan
    has_ids = cell.core.has_keys
    routed = has_ids and plan.router is not None
    return {
        "policy": plan.policy_name,
        "router": plan.router_name,
        "index": plan.index_name,
        "capacity": plan.config.capacity,
        "capacity_blocks": cell.core.capacity_blocks,
        "requests": totals.requests,
        "asked_blocks": totals.counts["blocks"],
        "hit_tokens": totals.hits.tokens,
        **{name: totals.counts[name] for name in COUNTED},
        **evenness(totals),
        "routed_away_tokens": totals.routing.routed_away if routed else None,
        "stale_tokens": totals.routing.stale if routed else None,
        "unforeseen_tokens": totals.routing.unforeseen if routed else None,
        "rates": totals.rates(totals.hits, known=has_ids),
        "belady_rates": totals.rates(totals.belady, known=has_bound),
        "infinite_rates": totals.rates(totals.infinite, known=has_ids and plan.config.seen == "exact"),
    }


def _write(config: RunConfig, result: MatrixResult) -> None:
    """A row a cell, every rate a column."""
    rows = [
        {
            **{name: value for name, value in cell.items() if not isinstance(value, dict)},
            "capacity": str(cell["capacity"]),
            **{f"{name}_rate": cell["rates"][name] for name in RATES},
            **{f"belady_{name}_rate": cell["belady_rates"][name] for name in RATES},
            **{f"infinite_{name}_rate": cell["infinite_rates"][name] for name in RATES},
        }
        for cell in result.cells
    ]
    rates = [f"{of}{name}_rate" for of in ("", "belady_", "infinite_") for name in RATES]
    # What is null in all rows has a type, too.
    types = dict.fromkeys(rates, pa.float64()) | {"router": pa.string(), "index": pa.string()}
    types |= dict.fromkeys(("routed_away_tokens", "stale_tokens", "unforeseen_tokens"), pa.int64())
    types |= dict.fromkeys(EVENNESS, pa.float64())
    table = pa.Table.from_pylist(rows)
    schema = pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in table.schema])
    with write_parquet([(config.output or "", schema)], force=config.force) as (writer,):
        for batch in table.cast(schema).to_batches():
            writer.write(batch)
        writer.finish(result.manifest)
