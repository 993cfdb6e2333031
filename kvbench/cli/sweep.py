"""``kvbench sweep``: many replays, one table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.options import block_options, cache_options, routing_options, serving_options, tier_options
from kvbench.cli.parts import PartType, make_part
from kvbench.cli.progress import CELLS, row_progress
from kvbench.cli.root import has_autoload, registry_of
from kvbench.cli.served import check_served
from kvbench.errors import EXIT_FAILED_CELLS, EXIT_OK
from kvbench.specs import EvictionPolicySpec, ExecutorSpec, RouterPolicySpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.sweeps.plan import SweepPlan
    from kvbench.sweeps.result import SweepResult


@click.command(
    epilog="""\b
Examples:
  kvbench sweep traces/chat.arrow --capacity 1%..100% --policy lru --policy arc -o sweep.parquet
  kvbench sweep trace.arrow --capacity 10k --vary workers=1,2,4,8 --router dynamo-kv --router max-prefix
  kvbench sweep trace.arrow --stack "gpu,capacity=1k" --stack "gpu,capacity=1k; cpu,capacity=10k"
  kvbench sweep trace.arrow --capacity 10k --vary policy=lru,s3-fifo,small=0.1,arc --executor local,processes=4
  kvbench sweep trace.arrow --compute poly --workers 4 --capacity 10k --vary arrivals.rate=0.5..8:5 --seeds 5 \\
      --pareto token_rate,ttft_p99 --plot front.html
  kvbench sweep --config sweep.toml -o sweep.parquet

kvbench plugins lists the executors with their parameters."""
)
@click.argument("trace", required=False)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML: the keys of a run file for all cells, a table [grid] of setting = list or range, and tables [[cell]] "
    "of settings, for each of which the grid is taken.",
)
@click.option(
    "--vary",
    multiple=True,
    metavar="SETTING=VALUE,…",
    help="An axis of the grid: a key of a run file, dotted into its tables (arrivals.rate, tiers.cpu.capacity, "
    "policy.small). LOW..HIGH is ten values a decade, or every whole number where the setting is one; LOW..HIGH:N is "
    "N values, evenly spaced in the logarithm.",
)
@click.option(
    "--stack",
    multiple=True,
    metavar="TIER; TIER…",
    help="A whole stack of tiers, each as --tier has it; several of them are an axis.",
)
@click.option(
    "--capacity",
    multiple=True,
    metavar="SIZE,…",
    help="Of each worker: blocks (10k), bytes (64GiB, needs --block-bytes), a share of the trace's distinct blocks "
    "(10%), or infinite. Several, or a range (1k..1M), are an axis.  [default: infinite]",
)
@click.option(
    "--policy",
    type=PartType(EvictionPolicySpec),
    multiple=True,
    help="Eviction policy; several are an axis.  [default: lru]",
)
@click.option("--workers", type=int, metavar="N", help="Engine replicas, each with its own cache.  [default: 1]")
@click.option(
    "--router",
    type=PartType(RouterPolicySpec),
    multiple=True,
    help="Who serves a request; several are an axis.  [default: max-prefix]",
)
@routing_options()
@tier_options()
@serving_options("--seeds")
@block_options("capacities and figures in bytes")
@cache_options("[default: off, for it takes a pass of its own in every cell]")
@click.option(
    "--method",
    type=click.Choice(["auto", "replay"]),
    default="auto",
    show_default=True,
    help="auto: cells of plain LRU over one tier that differ in capacity alone are answered by the exact curve, in one "
    "pass, which has rates and no counts of evictions; replay: every cell is replayed.",
)
@click.option(
    "--executor",
    type=PartType(ExecutorSpec),
    default="local",
    show_default=True,
    help="Where cells run.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write a row a cell to this .parquet or .csv file. Cells that it has are not run again, nor are those of a "
    "sweep that was cut short.",
)
@click.option("--force", is_flag=True, help="Run all cells anew, and replace files that exist.")
@click.option(
    "--pareto",
    metavar="FIGURE,FIGURE…",
    help="Mark the cells that no other one beats in all of these figures, by short name (token_rate, ttft_p99) or "
    "path; + before one that is to be high, - before one that is to be low.",
)
@click.option(
    "--plot",
    metavar="FILE",
    help="Draw the first figure of --pareto over each of the others, with the front and error bars over the seeds: "
    ".html, .svg or .png; needs the extra 'report'.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def sweep(ctx: click.Context, /, as_json: bool, pareto: str | None, plot: str | None, **settings: Any) -> None:
    """Replay TRACE under many settings, and say what each gave.

    A cell is one replay; all of them have one trace. A cell that fails is a row that says why,
    and makes the exit code 1. TRACE is a file in kvbench's schema, as for kvbench replay.
    """
    own = {name: settings.pop(name) for name in ("executor", "output", "force", "method")}
    if pareto is not None:
        from kvbench.sweeps.groups import objective_names

        objective_names(pareto)
    draw = _plotter(plot, pareto, own) if plot is not None else None
    result, output = _run(ctx, _plan(settings), **own), own["output"]
    if as_json:
        from kvbench.cli.jsonout import print_json

        print_json(_document(result, pareto))
    else:
        from kvbench.cli.sweeptables import print_sweep

        print_sweep(result, output, pareto)
    if draw is not None:
        draw(result)
        click.echo(f"wrote {plot}", err=as_json)
    for cell in result.failed[:SHOWN_FAILURES]:
        click.echo(f"cell {cell.number} failed: {cell.error}", err=True)
    if len(result.failed) > SHOWN_FAILURES:
        click.echo(f"{len(result.failed) - SHOWN_FAILURES:,} more cells failed: see --json, or the table", err=True)
    check_served([cell.summary["requests"] for cell in result.cells if cell.summary is not None])
    ctx.exit(EXIT_FAILED_CELLS if result.failed else EXIT_OK)


SHOWN_FAILURES = 5


def _plotter(plot: str, pareto: str | None, own: dict[str, Any]) -> Callable[[SweepResult], None]:
    """Checks before the run that the plot can be made, and gives a function that makes it; --force is for the table
    only where there is one."""
    from kvbench.errors import ConfigError
    from kvbench.report.pareto import pareto_plotter

    if pareto is None:
        raise ConfigError("--plot has no effect without --pareto, which says what to draw")
    draw = pareto_plotter(plot, pareto, force=own["force"])
    own["force"] = own["force"] and own["output"] is not None
    return draw


def _plan(settings: dict[str, Any]) -> SweepPlan:
    """The plan of the options."""
    from kvbench.errors import ConfigError
    from kvbench.sweeps.plan import make_plan

    trace, file = settings.pop("trace"), settings.pop("file")
    vary: dict[str, Any] = {}
    for axis in settings.pop("vary"):
        path, equals, values = axis.partition("=")
        if not equals or not values:
            raise ConfigError(f"--vary {axis}: write a setting and its values, as in workers=1,2,4")
        if path.strip() in vary:
            raise ConfigError(f"--vary {path.strip()} is given twice")
        vary[path.strip()] = values
    stacks = settings.pop("stack")
    given = {name: value for name, value in settings.items() if value not in (None, ())}
    if stacks:
        if "tiers" in given:
            raise ConfigError("--stack and --tier both say which tiers there are; give one of them")
        vary = {"tiers": list(stacks), **vary}
    for name in ("policy", "router"):
        if name in given:
            given[name] = given[name][0] if len(given[name]) == 1 else list(given[name])
    if "capacity" in given:
        given["capacity"] = ",".join(given["capacity"])
    for name in ("tiers", "links"):
        if name in given:
            given[name] = list(given[name])
    return make_plan(trace, file=file, settings=given, vary=vary)


def _run(ctx: click.Context, plan: SweepPlan, *, executor: str, **how: Any) -> SweepResult:
    from kvbench.sweeps.run import run_sweep

    registry = registry_of(ctx)
    place = make_part(registry, ExecutorSpec, executor, "--executor")[1]
    with row_progress("sweep", CELLS) as progress:
        return run_sweep(
            plan,
            registry,
            executor=place,
            progress=progress,
            clock=time.perf_counter,
            autoload=has_autoload(),
            **how,
        )


def _document(result: SweepResult, pareto: str | None) -> dict[str, Any]:
    document = result.to_dict() | {"found_cells": result.found}
    if pareto is None:
        return document
    from kvbench.sweeps.groups import group_cells, pareto_front, parse_objectives

    groups = group_cells(result)
    front = pareto_front(groups, parse_objectives(pareto, groups))
    return document | {"pareto": [[cell.number for cell in group.cells] for group in front]}
