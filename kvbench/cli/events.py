"""``kvbench events``: what an event log says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kvbench.cli.jsonout import print_json

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
force_option = click.option("--force", is_flag=True, help="Overwrite files that exist.")


@click.group()
def events() -> None:
    """Read, write and fold logs of what was stored where."""


@events.command(
    name="import",
    epilog="""\b
Examples:
  kvbench events import capture.bin -o events.parquet
  kvbench events import sample_events.lct -o events.parquet --json""",
)
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", required=True, help="The Parquet file to write.")
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    help="vllm: a capture of vLLM's or SGLang's messages; lmcache: an .lct recording; dynamo: JSON lines.  "
    "[default: guessed]",
)
@force_option
@json_option
def import_(source: Path, output: str, format_: str | None, force: bool, as_json: bool) -> None:
    """Turn the events of SOURCE, which another system sent, into kvbench's event rows.

    Repeated messages are dropped, gaps in their numbers and what could not be understood counted.
    A request of the table is a message.
    """
    from dataclasses import asdict

    from kvbench.atomic import same_file
    from kvbench.errors import OutputError
    from kvbench.events import import_events

    if same_file(source, output):
        raise OutputError(f"{output} is the file that is read; give another name")
    report = import_events(source, output, format=format_, force=force)
    if as_json:
        print_json(asdict(report))
        return
    guessed = "" if format_ else " (guessed)"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.events.items())
    click.echo(f"{source}: {report.format}{guessed}, {report.messages:,} messages of {len(report.workers):,} workers")
    click.echo(f"events: {kinds}")
    click.echo(
        f"{report.lost:,} messages lost in {report.gaps:,} gaps, {report.late:,} late, "
        f"{report.repeats:,} repeated, {report.restarts:,} restarts"
    )
    for name, count in report.unknown.items():
        click.echo(f"passed over: {name} ({count:,} times)")
    click.echo(f"wrote {output}")


@events.command(epilog="Example: kvbench events export events.parquet -o capture.bin")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", required=True, help="The capture to write.")
@click.option(
    "--layout",
    type=click.Choice(["map", "array"]),
    default="map",
    show_default=True,
    help="Of an event: as vLLM 0.24 and later write it, or as 0.22 and 0.23 did.",
)
@click.option(
    "--block-tokens", type=click.IntRange(min=1), metavar="N", help="Tokens of a block.  [default: the log's]"
)
@click.option("--topic", default="kvbench", show_default=True, help="Messages of worker W have the topic TOPIC@W.")
@force_option
def export(source: Path, output: str, **settings: Any) -> None:
    """Turn the log SOURCE into the messages that vLLM would have sent, to feed an indexer with.

    The file has one message a frame: 4 bytes of length, big-endian, and a msgpack array of its parts
    (topic, sequence number, payload). Blocks carry no tokens. In a tier that workers share, a change is
    told by the worker whose request caused it; where a worker has several stores in a tier, an event's
    group tells them apart.
    """
    from kvbench.atomic import same_file
    from kvbench.errors import OutputError
    from kvbench.events import export_events

    if same_file(source, output):
        raise OutputError(f"{output} is the log that is read; give another name")
    report = export_events(source, output, **settings)
    if report.damage:
        click.echo(f"{source} is damaged: {report.damage}")
    click.echo(f"wrote {output}: {report.messages:,} messages")


@events.command(epilog="Example: kvbench events stats events.parquet --json")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def stats(file: Path, as_json: bool) -> None:
    """Say how long blocks stay, how soon they come back, and what is odd about the log FILE."""
    from kvbench.events.stats import event_stats

    found = event_stats(file)
    if as_json:
        print_json(found)
        return
    from kvbench.cli.eventtables import print_stats

    print_stats(found)


@events.command(
    epilog="""\b
Examples:
  kvbench events fold events.parquet
  kvbench events fold events.parquet --until 1000 -o state.parquet"""
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Fold the events of the first N requests only.")
@click.option("-o", "--output", metavar="FILE", help="Write a row for each resident block to this Parquet file.")
@click.option(
    "--duplicates",
    type=click.Choice(["refuse", "naive", "refcount"]),
    help="A block that is stored where it is already is an error, is gone with the first removal, or with as many as "
    "it was stored times.  [default: refuse for a replay's log, refcount for an imported one]",
)
@force_option
@json_option
def fold(file: Path, until: int | None, output: str | None, duplicates: Any, force: bool, as_json: bool) -> None:
    """Fold the events of FILE, a replay's or imported ones, into the state they lead to.

    The log is checked on the way: a gap in a worker's sequence is an error, and so is, by the rule
    refuse, a block stored where it is already, or one taken from where it is not.
    """
    from kvbench.atomic import same_file
    from kvbench.errors import OutputError
    from kvbench.results.folding import fold_file, write_state
    from kvbench.results.parquet import check_parquet

    if force and output is None:
        raise click.UsageError("--force has no effect without --output")
    if output is not None:
        if same_file(file, output):
            raise OutputError(f"{output} is the log that is read; give another name")
        check_parquet(output, force=force)
    folded = fold_file(file, until=until, duplicates=duplicates)
    if output is not None:
        write_state(folded, output, force=force)
    if as_json:
        print_json(folded.to_dict())
        return
    from kvbench.cli.eventtables import print_folded

    print_folded(folded)
    if output is not None:
        click.echo(f"wrote {output}")
