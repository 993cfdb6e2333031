"""``kvbench trace``: import, export, inspect, select, make, anonymize."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.anonymize import anonymize
from kvbench.cli.parts import PartType, make_part
from kvbench.cli.root import registry_of
from kvbench.cli.traceinspect import inspect
from kvbench.cli.tracemake import make
from kvbench.cli.traceselect import select
from kvbench.errors import ConfigError, TraceError
from kvbench.specs import TraceFormatSpec

if TYPE_CHECKING:
    from kvbench.plugins import Registry
    from kvbench.trace.formats import TraceFormat
    from kvbench.trace.members import Members

MLPERF = "mlperf-io"
EXPORTS = ("aiperf", "arrow", "csv", "libcachesim", "mooncake", "parquet", MLPERF)
COMPRESSIONS = (".gz", ".zst", ".bz2", ".tgz")


@click.group()
def trace() -> None:
    """Import, export, inspect, select, make and anonymize traces."""


trace.add_command(anonymize)
trace.add_command(inspect)
trace.add_command(make)
trace.add_command(select)


@trace.command(
    name="import",
    epilog="""\b
Examples:
  kvbench trace import conversation_trace.jsonl.gz -o conversation.arrow
  kvbench trace import --shared-ids shard-2.jsonl shard-1.jsonl -o whole.arrow
  zcat log.jsonl.gz | kvbench trace import --on-error skip - -o log.arrow""",
)
@click.argument("sources", metavar="SOURCE…", nargs=-1, required=True)
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
    help="A bad row ends the run, or is left out and counted.",
)
@click.option("--strict-order", is_flag=True, help="Refuse a source whose arrivals go back, instead of sorting it.")
@click.option("--normalise-time", is_flag=True, help="Shift arrivals so that the earliest is 0; they may be negative.")
@click.option(
    "--shared-ids", is_flag=True, help="Equal ids of different files are the same blocks: the files are one trace."
)
@click.option("--max-input-tokens", type=int, metavar="N", help="Most tokens of a prompt.  [default: no limit]")
@click.option(
    "--too-long",
    type=click.Choice(["reject", "clip"]),
    help="A prompt with more is a bad row, or is cut.  [default: reject]",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.pass_context
def import_(
    ctx: click.Context,
    /,
    sources: tuple[str, ...],
    output: Path | None,
    format_: str | None,
    max_input_tokens: int | None,
    too_long: str | None,
    **settings: Any,
) -> None:
    """Turn a foreign trace into kvbench's Arrow (or .parquet) form.

    SOURCE is a file, a folder, a glob, a tar or zip archive, an address (s3://…, https://…, hf://…; extra
    remote), or - for standard input; plain or compressed (gzip, zstd, bzip2). Several make one trace.

    Rows are sorted by arrival and checked one by one; block ids are numbered anew, 0, 1, 2, … in
    first-seen order, which changes no hit and makes replays fast.
    """
    from kvbench.trace.importer import guess_format, import_trace
    from kvbench.trace.limit import PromptLimit
    from kvbench.trace.members import Members

    if too_long is not None and max_input_tokens is None:
        raise ConfigError(f"--too-long {too_long} has no effect without --max-input-tokens")
    limit = None if max_input_tokens is None else PromptLimit(max_input_tokens, clip=too_long == "clip")
    registry = registry_of(ctx)
    target = output if output is not None else _default_output(sources)
    members = Members(sources)
    if format_ is None:
        name, reader = guess_format(members, _formats(registry))
        guessed = " (guessed)"
    else:
        name, reader = make_part(registry, TraceFormatSpec, format_, "--format")
        guessed = ""
    try:
        report = import_trace(members, target, format=reader, limit=limit, **settings)
    except TraceError as error:
        if format_ is None or error.can_be_skipped:
            raise
        raise _with_guess(error, name, members, registry) from error
    click.echo(f"{members.title}: {name}{guessed}, {report.rows:,} rows", nl=False)
    click.echo(f" of {report.members:,} files" if report.members > 1 else "", nl=False)
    click.echo(f", {report.distinct_blocks:,} distinct blocks" if report.distinct_blocks is not None else "")
    if report.skipped:
        click.echo(f"left out: {report.skipped:,} bad rows, for example:")
        for example in report.skipped_examples:
            click.echo(f"  {example}")
    for note in report.notes:
        click.echo(f"note: {note}")
    click.echo(f"wrote {target}")


def _formats(registry: Registry) -> list[tuple[str, TraceFormat]]:
    """All that can be made without parameters."""
    return [
        (spec.name, spec.load()(**spec.parse_params({})))
        for spec in registry.specs(TraceFormatSpec)
        if not any(param.default is None and not param.optional for param in spec.params)
    ]


def _with_guess(error: TraceError, name: str, members: Members, registry: Registry) -> TraceError:
    """``error`` of a source that was read as format ``name``, and which other one it looks like."""
    from kvbench.trace.importer import guess_format

    try:
        other, _ = guess_format(members, _formats(registry))
    except TraceError:
        return error
    return error if other == name else TraceError(f"{error}; it looks like --format {other}")


def _default_output(sources: tuple[str, ...]) -> Path:
    """One source's name with another suffix, in the current folder."""
    if len(sources) > 1 or sources[0] == "-" or set(sources[0]) & set("*?["):
        raise click.UsageError("give the output a name with --output, for the source has not one name")
    return Path(_stem(Path(sources[0].rstrip("/")).name) + ".arrow")


@trace.command(
    epilog="""\b
Examples:
  kvbench trace export conversation.arrow --to mooncake -o conversation.jsonl
  kvbench trace export conversation.arrow --to libcachesim -o conversation.oracleGeneral
  kvbench trace export events.parquet --to mlperf-io -o io.csv"""
)
@click.argument("source", metavar="TRACE")
@click.option("--to", type=click.Choice(EXPORTS), required=True, help="The form to write.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="What to write.")
@click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block, instead of what the file says.")
@click.option("--block-bytes", type=click.IntRange(min=1), metavar="N", help="Bytes of a block, for mlperf-io.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def export(source: str, to: str, output: Path, block_tokens: int | None, block_bytes: int | None, force: bool) -> None:
    """Write TRACE as what other tools read.

    Ids are written exactly; those of the source where the import kept them (--keep-ids). What a form cannot
    carry is told, and where it would make another trace of it, refused. For mlperf-io TRACE is the log that
    kvbench replay --events wrote.
    """
    if to == MLPERF:
        from kvbench.events.mlperf import export_io_log

        if block_tokens is not None:
            raise click.UsageError(f"--block-tokens has no effect with --to {MLPERF}")
        count = export_io_log(source, output, block_bytes=block_bytes, force=force)
        click.echo(f"wrote {output}: {count:,} reads and writes")
        return
    from kvbench.trace.exports import export_trace

    if block_bytes is not None:
        raise click.UsageError(f"--block-bytes has no effect without --to {MLPERF}")
    report = export_trace(source, output, to=to, block_tokens=block_tokens, force=force)
    for note in report.notes:
        click.echo(f"note: {note}")
    click.echo(f"wrote {output}: {report.rows:,} rows")


def _stem(name: str) -> str:
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return Path(name).stem or name
