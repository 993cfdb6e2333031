"""``kvbench trace``: import, inspect, make, anonymize."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.anonymize import anonymize
from kvbench.cli.parts import PartType
from kvbench.cli.progress import row_progress
from kvbench.cli.root import registry_of
from kvbench.errors import ConfigError
from kvbench.specs import TraceFormatSpec, WorkloadSpec

if TYPE_CHECKING:
    from kvbench.plugins import Registry
    from kvbench.specs import Spec

COMPRESSIONS = (".gz", ".zst", ".bz2", ".tgz")


@click.group()
def trace() -> None:
    """Import, inspect, make and anonymize traces."""


trace.add_command(anonymize)


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
    help="A bad row ends the import, or is left out and counted.",
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
@click.option("--force", is_flag=True, help="Overwrite the output if it exists.")
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
        formats = [
            (spec.name, spec.load()(**spec.parse_params({})))
            for spec in registry.specs(TraceFormatSpec)
            if not any(param.default is None and not param.optional for param in spec.params)
        ]
        name, reader = guess_format(members, formats)
        guessed = " (guessed)"
    else:
        name, reader = _make(registry, TraceFormatSpec, format_, "--format")
        guessed = ""
    report = import_trace(members, target, format=reader, limit=limit, **settings)
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


def _default_output(sources: tuple[str, ...]) -> Path:
    """One source's name with another suffix, in the current folder."""
    if len(sources) > 1 or sources[0] == "-" or set(sources[0]) & set("*?["):
        raise click.UsageError("give the output a name with --output, for the source has not one name")
    return Path(_stem(Path(sources[0].rstrip("/")).name) + ".arrow")


@trace.command(epilog="Example: kvbench trace inspect conversation.arrow")
@click.argument("source", metavar="TRACE")
@click.option("--block-tokens", type=int, metavar="N", help="Tokens of a block, instead of what the file says.")
@click.option("--tail-rule", type=click.Choice(["ceil", "floor"]), help="Whether a partial last block has an id.")
@click.option("--on-error", type=click.Choice(["fail", "skip"]), default="fail", show_default=True, help="Bad rows.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def inspect(ctx: click.Context, /, source: str, as_json: bool, **settings: Any) -> None:
    """Say what is in TRACE: arrivals, lengths, the reuse there is to win, and what looks odd."""
    from kvbench.results.inspect import inspect_trace
    from kvbench.trace.reader import open_trace

    opened = open_trace(source, **settings)
    with row_progress("inspect") as progress:
        report = inspect_trace(opened, registry_of(ctx), progress=progress)
    if as_json:
        import json

        click.echo(json.dumps(report, indent=2))
        return
    from kvbench.cli.inspection import print_inspection

    print_inspection(report)


@trace.command(
    epilog="""\b
Examples:
  kvbench trace make chat -o chat.arrow
  kvbench trace make chat,sessions=1000,turns=8 --seed 7 -o big.arrow
  kvbench trace make rag,num_documents=50,docs_per_request=3,ids=token,separator_tokens=2 -o rag.arrow

kvbench plugins lists the workloads with their parameters."""
)
@click.argument("workload", type=PartType(WorkloadSpec))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="What to write.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of every random choice.")
@click.option("--force", is_flag=True, help="Overwrite the output if it exists.")
@click.pass_context
def make(ctx: click.Context, workload: str, output: Path, seed: int, force: bool) -> None:
    """Make a synthetic trace from WORKLOAD and a seed."""
    from kvbench.trace.writer import TraceWriter

    _, made = _make(registry_of(ctx), WorkloadSpec, workload, "WORKLOAD", seed)
    rows = 0
    with TraceWriter(output, made.schema, made.facts, force=force) as writer:
        for batch in made.batches():
            writer.write(batch)
            rows += batch.num_rows
    click.echo(f"wrote {output}: {rows:,} rows")


def _make(registry: Registry, kind: type[Spec], choice: str, setting: str, *args: Any) -> tuple[str, Any]:
    from kvbench.config import parse_part

    name, params = parse_part(choice, setting)
    spec = registry.get(kind, name)
    return name, spec.load()(*args, **spec.parse_params(params))


def _stem(name: str) -> str:
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return Path(name).stem or name
