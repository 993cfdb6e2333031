"""``kvbench curve``: the LRU hit rate of every capacity, in one pass."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.options import block_options, on_error_option
from kvbench.cli.parts import PartType
from kvbench.cli.progress import row_progress
from kvbench.cli.root import registry_of
from kvbench.cli.served import check_served
from kvbench.specs import EvictionPolicySpec

if TYPE_CHECKING:
    from kvbench.config import RunConfig
    from kvbench.plugins import Registry
    from kvbench.replays.sample import SampleChoice
    from kvbench.results.matrix import MatrixResult


@click.command(
    epilog="""\b
Examples:
  kvbench curve traces/chat.arrow
  kvbench curve trace.arrow --capacity 1k,10k,10% --block-bytes 2MiB
  kvbench curve trace.arrow --capacity 1k,10k,100k --policy arc --policy sieve
  kvbench curve trace.arrow --capacity 1k..1M -o curve.parquet --plot curve.html
  kvbench curve huge.parquet --sample 0.01"""
)
@click.argument("trace")
@click.option(
    "--capacity",
    metavar="SIZE,…",
    help="Capacities to show: blocks (10k), bytes (64GiB, needs --block-bytes), shares of the distinct blocks "
    "(10%), or ranges of them (1k..1M, ten steps a decade).  [default: about twenty]",
)
@click.option(
    "--policy",
    type=PartType(EvictionPolicySpec),
    multiple=True,
    help="Replay this policy at the shown capacities, too, beside the Belady bound; may be given several times.",
)
@block_options("capacities and gains in bytes")
@on_error_option
@click.option(
    "--sample",
    type=float,
    metavar="SHARE",
    help="Look at this share of the prefix trees (or sessions) only, and give error bars.",
)
@click.option("--sample-by", type=click.Choice(["tree", "session"]), help="What is kept whole.  [default: tree]")
@click.option(
    "--sample-depth",
    type=int,
    metavar="N",
    help="Name trees by the block after N leading ones, where few first blocks start most requests.  [default: 0]",
)
@click.option("--seed", type=int, metavar="N", help="Of the sample.  [default: 0]")
@click.option(
    "-o", "--output", metavar="FILE", help="Write every capacity that changes the curve to this Parquet file."
)
@click.option("--plot", metavar="FILE", help="Draw the curve: .html, .svg or .png; needs the extra 'report'.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def curve(ctx: click.Context, /, as_json: bool, plot: str | None, policy: tuple[str, ...], **settings: Any) -> None:
    """Show the exact LRU hit rates of TRACE at every capacity, found in one pass.

    The curve is that of one cache under the request order of kvbench replay; its knee, what more
    capacity gains, and the distances and times between uses of a block come with it.
    """
    from kvbench.config import load_config
    from kvbench.errors import ConfigError
    from kvbench.results.curve import run_curve

    capacities = settings.pop("capacity")
    sample = _sample_of(settings)
    if policy and sample is not None:
        raise ConfigError("--policy has no effect with --sample: policies are replayed over the whole trace")
    force = settings.pop("force")
    given = {name: value for name, value in settings.items() if value is not None}
    if force:
        _check_force(given, plot)
    config = load_config(None, {**given, **({"force": True} if force and "output" in given else {})})
    draw = _plotter(plot, force) if plot is not None else None
    registry = registry_of(ctx)
    started = time.perf_counter()
    with row_progress("curve") as progress:
        result = run_curve(
            config, registry, capacities=capacities, sample=sample, progress=progress, clock=time.perf_counter
        )
    if draw is not None:
        draw(result)
    result.wall_clock["total_s"] = time.perf_counter() - started
    matrix = _replays(config, registry, policy, result.curve) if policy else None
    if as_json:
        from kvbench.cli.jsonout import print_json

        document = result.to_dict() | ({"policies": matrix.cells} if matrix is not None else {})
        print_json(document)
    else:
        from kvbench.cli.curvetables import print_curve
        from kvbench.cli.tables import print_matrix

        print_curve(result, config, [path for path in (config.output, plot) if path])
        if matrix is not None:
            click.echo()
            print_matrix(matrix, config)
    check_served([result.summary["requests"]])


def _replays(
    config: RunConfig, registry: Registry, policies: tuple[str, ...], shown: list[dict[str, Any]]
) -> MatrixResult:
    """The policies at the capacities that the curve shows."""
    import msgspec

    from kvbench.results.matrix import run_matrix

    capacities = [row["capacity_blocks"] for row in shown if row["capacity_blocks"] is not None]
    cells = msgspec.structs.replace(config, policy=list(policies), capacity=capacities, output=None, force=False)
    started = time.perf_counter()
    with row_progress("replay") as progress:
        matrix = run_matrix(cells, registry, progress=progress, clock=time.perf_counter)
    matrix.wall_clock["total_s"] = time.perf_counter() - started
    return matrix


def _sample_of(settings: dict[str, Any]) -> SampleChoice | None:
    """The sample that was asked for; takes its settings out of ``settings``."""
    from kvbench.errors import ConfigError

    rate, by, depth = (settings.pop(name) for name in ("sample", "sample_by", "sample_depth"))
    if rate is None:
        for name, value in (("--sample-by", by), ("--sample-depth", depth), ("--seed", settings["seed"])):
            if value is not None:
                raise ConfigError(f"{name} has no effect without --sample")
        return None
    from kvbench.replays.sample import SampleChoice

    return SampleChoice(rate, by or "tree", depth or 0)


def _check_force(given: dict[str, Any], plot: str | None) -> None:
    from kvbench.errors import ConfigError

    if "output" not in given and plot is None:
        raise ConfigError("--force has no effect without --output or --plot")


def _plotter(path: str, force: bool) -> Any:
    """Checks before the run that the plot can be made, and gives a function that makes it."""
    from kvbench.report.curve import curve_plotter

    return curve_plotter(path, force=force)
