"""``kvbench trace``: import, inspect, select, make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kvbench.cli.parts import PartType, make_part
from kvbench.cli.root import registry_of
from kvbench.cli.traceinspect import inspect
from kvbench.cli.tracemake import make
from kvbench.cli.traceselect import select
from kvbench.specs import TraceFormatSpec

COMPRESSIONS = (".gz", ".zst", ".bz2")


@click.group()
def trace() -> None:
    """Import, inspect, select and make traces."""


trace.add_command(inspect)
trace.add_command(make)
trace.add_command(select)


@trace.command(
    name="import",
    epilog="Example: kvbench trace import conversation_trace.jsonl.gz -o conversation.arrow",
)
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: SOURCE's name with .arrow, here."
)
@click.option("--format", "format_", type=PartType(TraceFormatSpec), help="Format of SOURCE.  [default: guessed]")
@click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block.  [default: what the format says]")
@click.option("--keep-ids", is_flag=True, help="Keep the original block ids in a column original_ids.")
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="A bad row ends the import, or is left out and counted.",
)
@click.option("--strict-order", is_flag=True, help="Refuse a file whose arrivals go back, instead of sorting it.")
@click.option("--force", is_flag=True, help="Overwrite the output if it exists.")
@click.pass_context
def import_(ctx: click.Context, /, source: Path, output: Path | None, format_: str | None, **settings: Any) -> None:
    """Turn a foreign trace into kvbench's Arrow (or .parquet) form.

    Rows are sorted by arrival and checked one by one; block ids are numbered anew, 0, 1, 2, … in
    first-seen order, which changes no hit and makes replays fast.
    """
    from kvbench.trace.formats.text import Lines
    from kvbench.trace.importer import guess_format, import_trace

    registry = registry_of(ctx)
    lines = Lines(source)
    if format_ is None:
        formats = [(spec.name, spec.load()()) for spec in registry.specs(TraceFormatSpec)]
        name, reader = guess_format(lines, formats)
        guessed = " (guessed)"
    else:
        name, reader = make_part(registry, TraceFormatSpec, format_, "--format")
        guessed = ""
    target = output if output is not None else Path(_stem(source.name) + ".arrow")
    report = import_trace(lines, target, format=reader, **settings)
    click.echo(f"{source}: {name}{guessed}, {report.rows:,} rows", nl=False)
    click.echo(f", {report.distinct_blocks:,} distinct blocks" if report.distinct_blocks is not None else "")
    if report.skipped:
        click.echo(f"left out: {report.skipped:,} bad rows, for example:")
        for example in report.skipped_examples:
            click.echo(f"  {example}")
    for note in report.notes:
        click.echo(f"note: {note}")
    click.echo(f"wrote {target}")


def _stem(name: str) -> str:
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return Path(name).stem
