"""``kvbench trace inspect``: what is in a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.progress import row_progress
from kvbench.cli.root import registry_of

if TYPE_CHECKING:
    from collections.abc import Callable


@click.command(
    epilog="""\b
Examples:
  kvbench trace inspect conversation.arrow
  kvbench trace inspect chat.arrow --json | jq .over_time
  kvbench trace inspect chat.arrow --plot chat.html
  kvbench trace inspect tokens.arrow --block-sizes 16,64,784"""
)
@click.argument("source", metavar="TRACE")
@click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block, instead of what the file says.")
@click.option(
    "--tail-rule", type=click.Choice(["ceil", "floor"]), help="Whether a partial last block has an id (ceil) or none."
)
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="A bad row ends the run, or is left out and counted.",
)
@click.option(
    "--block-sizes",
    metavar="N,…",
    help="Say what these block sizes would hit: any where TRACE has token ids, else multiples of its own."
    "  [default: some]",
)
@click.option("--plot", metavar="FILE", help="Draw charts: .html, .svg or .png; needs the extra 'report'.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def inspect(
    ctx: click.Context,
    /,
    source: str,
    as_json: bool,
    block_sizes: str | None,
    plot: str | None,
    force: bool,
    **settings: Any,
) -> None:
    """Say what is in TRACE: arrivals, lengths, the reuse there is to win, who shares, and what looks odd.

    Reuse is that of a cache which holds everything. Live blocks were used before and will be again: a
    cache that knew the future would need room for them and no others.
    """
    from kvbench.results.inspect import inspect_trace
    from kvbench.trace.reader import open_trace
    from kvbench.units import parse_counts

    draw = _plotter(plot, force)
    sizes = None if block_sizes is None else parse_counts(block_sizes)
    opened = open_trace(source, **settings)
    with row_progress("inspect") as progress:
        report = inspect_trace(opened, registry_of(ctx), block_sizes=sizes, progress=progress)
    if draw is not None:
        draw(report)
    if as_json:
        import json

        click.echo(json.dumps(report, indent=2))
        return
    from kvbench.cli.inspection import print_inspection

    print_inspection(report)
    if plot is not None:
        click.echo(f"wrote {plot}")


def _plotter(plot: str | None, force: bool) -> Callable[[dict[str, Any]], None] | None:
    """Checks before the run that the charts can be made, and gives a function that makes them."""
    from kvbench.errors import ConfigError

    if plot is None:
        if force:
            raise ConfigError("--force has no effect without --plot")
        return None
    from kvbench.report.inspection import inspection_plotter

    return inspection_plotter(plot, force=force)
