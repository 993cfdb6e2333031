"""``kvbench replay``: the main job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.options import block_options, cache_options, routing_options, serving_options, tier_options
from kvbench.cli.parts import PartType
from kvbench.cli.progress import row_progress
from kvbench.cli.root import registry_of
from kvbench.cli.served import check_served
from kvbench.specs import EvictionPolicySpec, RouterPolicySpec

if TYPE_CHECKING:
    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.replays.plan import Plan


@click.command(
    epilog="""\b
Examples:
  kvbench replay traces/chat.arrow --capacity 10%
  kvbench replay trace.arrow --capacity 64GiB --block-bytes 2MiB --workers 8 -o requests.parquet
  kvbench replay trace.arrow --policy lru --policy arc --policy sieve --capacity 1k,10k,10%
  kvbench replay trace.arrow --capacity 10k --workers 8 --router dynamo-kv --router round-robin
  kvbench replay trace.arrow --tier gpu,capacity=1k --tier cpu,capacity=10k --placement exclusive
  kvbench replay trace.arrow --capacity 10k --compute fixed,prefill_ms_per_token=0.1,decode_ms=20 --slo ttft=2s
  kvbench replay --config run.toml --policy fifo --json
  cat trace.arrows | kvbench replay - --capacity 10k

kvbench plugins lists the policies, routers and token databases with their parameters."""
)
@click.argument("trace", required=False)
@click.option("--config", "config_file", type=click.Path(path_type=Path), metavar="FILE", help="TOML run file.")
@click.option(
    "--capacity",
    metavar="SIZE",
    help="Of each worker: blocks (10k), bytes (64GiB, needs --block-bytes), a share of the trace's distinct blocks "
    "(10%), or infinite.  [default: infinite]",
)
@click.option(
    "--policy",
    type=PartType(EvictionPolicySpec),
    multiple=True,
    help="Eviction policy; several of them, or several capacities (1k,10k,10%), make a table.  [default: lru]",
)
@click.option("--workers", type=int, metavar="N", help="Engine replicas, each with its own cache.  [default: 1]")
@click.option(
    "--router",
    type=PartType(RouterPolicySpec),
    multiple=True,
    help="Who serves a request; several of them make a table.  [default: max-prefix]",
)
@routing_options()
@tier_options()
@serving_options()
@click.option("--sample", metavar="TIME", help="Between two samples of the --timeline.  [default: 1s]")
@block_options("capacities and figures in bytes")
@cache_options("[default: auto]")
@click.option("-o", "--output", metavar="FILE", help="Write a row a request to this Parquet file.")
@click.option("--events", metavar="FILE", help="Write every change of residency to this Parquet file.")
@click.option(
    "--timeline", metavar="FILE", help="Write samples of what each tier holds and has done to this Parquet file."
)
@click.option(
    "--timeline-every", type=int, metavar="N", help="Requests between two samples of the timeline.  [default: 1000]"
)
@click.option("--force", is_flag=True, default=None, help="Overwrite files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("--print-config", is_flag=True, help="Show the effective configuration as TOML, and stop.")
@click.pass_context
def replay(ctx: click.Context, /, config_file: Path | None, as_json: bool, print_config: bool, **settings: Any) -> None:
    """Replay TRACE and say what hit, what missed and why.

    Requests are served one after another, in no time (order replay). With --compute they
    are served on a simulated clock (timed replay): they overlap and wait for each other, for
    transfers and for steps of the engine, and the result has TTFT, TPOT, goodput, throughput
    and whether the workers keep up, too.

    TRACE is an Arrow IPC file, an Arrow stream (- for standard input) or a Parquet file in
    kvbench's schema; kvbench trace import makes one from a foreign file.
    """
    from kvbench.config import load_config

    given = {name: value for name, value in settings.items() if value not in (None, ())}
    for name in ("policy", "router"):
        if name in given:
            given[name] = given[name][0] if len(given[name]) == 1 else list(given[name])
    for name in ("tiers", "links"):
        if name in given:
            given[name] = list(given[name])
    config = load_config(config_file, given)
    registry = registry_of(ctx)
    if print_config and as_json:
        raise click.UsageError("--json has no effect with --print-config")
    if print_config:
        click.echo(effective_config(config, registry), nl=False)
        return
    _run(config, registry, as_json=as_json)


def effective_config(config: RunConfig, registry: Registry) -> str:
    """The configuration as TOML, parts and defaults filled in; it can be run again with ``--config``."""
    import tomli_w

    from kvbench.config import NOT_PART_OF_RESULT
    from kvbench.replays.plan import make_plan
    from kvbench.results.run import open_configured

    trace = open_configured(config)
    plans = [make_plan(cell, registry, trace) for cell in config.cells()]
    settings = plans[0].to_dict(plans[0].capacity_blocks)
    if config.model is not None:
        settings.pop("block_bytes", None)  # the model says it
    for table, tier in zip(settings.get("tiers", []), plans[0].config.tiers or [], strict=True):
        table["capacity"] = tier.capacity  # in bytes it says more than in blocks: how many are left over
    if config.is_matrix:
        settings |= {"capacity": config.capacity, **_lists(config, plans)}
    files = {name: value for name, value in config.to_dict().items() if name in NOT_PART_OF_RESULT and value}
    return tomli_w.dumps({**files, **settings})


def _lists(config: RunConfig, plans: list[Plan]) -> dict[str, Any]:
    """The policies and routers of a matrix, each once."""
    policies = {plan.policy_name: plan.policy.to_dict() for plan in plans if plan.policy is not None}
    routers = {plan.router_name: plan.router.to_dict() for plan in plans if plan.router is not None}
    lists = {"policy": list(policies.values())} if policies else {}
    return lists | ({"router": list(routers.values())} if isinstance(config.router, list) else {})


def _run(config: RunConfig, registry: Registry, *, as_json: bool) -> None:
    from kvbench.results.matrix import run_matrix
    from kvbench.results.run import run_repeats, run_replay

    _check_devices(config)
    started = time.perf_counter()
    run: Any = run_matrix if config.is_matrix else run_repeats if config.seeds > 1 else run_replay
    with row_progress("replay") as progress:
        result = run(config, registry, progress=progress, clock=time.perf_counter)
    result.wall_clock["total_s"] = time.perf_counter() - started
    for caution in result.manifest.get("cautions", ()):
        click.echo(f"caution: {caution}", err=True)
    if as_json:
        from kvbench.cli.jsonout import print_json

        print_json(result.to_dict())
    else:
        _print(result, config)
    check_served(_requests_of(result))


def _print(result: Any, config: RunConfig) -> None:
    from kvbench.cli.routermatrix import print_routers
    from kvbench.cli.tables import print_matrix, print_replay

    show: Any = print_matrix if config.is_matrix else print_replay
    if config.seeds > 1:
        from kvbench.cli.seedtables import print_repeats

        show = print_repeats
    if isinstance(config.router, list):
        show = print_routers
    show(result, config)


def _check_devices(config: RunConfig) -> None:
    """Refuse a file of devices of which no tier has one. Here alone: a cell of a sweep may do without."""
    if config.devices is None or config.tiers is None:
        return
    from kvbench.config import parse_part
    from kvbench.errors import ConfigError
    from kvbench.serving.devices import load_devices

    shipped = load_devices()
    own = [name for name, device in load_devices(Path(config.devices)).items() if device != shipped.get(name)]
    used = {parse_part(tier.device, f"tier {tier.name}: device")[0] for tier in config.tiers if tier.device is not None}
    if not used.intersection(own):
        raise ConfigError(f"--devices {config.devices} has no effect: no tier has a device of it ({', '.join(own)})")


def _requests_of(result: Any) -> list[dict[str, Any]]:
    """What became of the requests of each replay; those of a matrix have them all in common."""
    from kvbench.results.matrix import MatrixResult
    from kvbench.results.repeats import RepeatResult

    if isinstance(result, MatrixResult):
        return [result.requests]
    summaries = result.summaries if isinstance(result, RepeatResult) else [result.summary]
    return [summary["requests"] for summary in summaries]
