"""``kvbench events``: what an event log says."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def events() -> None:
    """Rebuild from an event log what was stored where."""


@events.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Fold the events of the first N requests only.")
@click.option("-o", "--output", metavar="FILE", help="Write a row for each resident block to this Parquet file.")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def fold(file: Path, until: int | None, output: str | None, force: bool, as_json: bool) -> None:
    """Fold the events of FILE, which kvbench replay --events wrote, into the state they lead to.

    The log is checked on the way: a gap in a worker's sequence, a block stored where it is
    already, or one taken from where it is not, is an error.
    """
    from kvbench.atomic import same_file
    from kvbench.errors import OutputError
    from kvbench.results.folding import fold_file, write_state

    if force and output is None:
        raise click.UsageError("--force has no effect without --output")
    if output is not None and same_file(file, output):
        raise OutputError(f"{output} is the log that is read; give another name")
    folded = fold_file(file, until=until)
    if output is not None:
        write_state(folded, output, force=force)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(folded.to_dict()), indent=2).decode())
        return
    from kvbench.cli.tables import Printer, simple_table

    out = Printer()
    out.print(f"{folded.events:,} events of {folded.requests:,} requests")
    table = simple_table("tier", "store", "resident blocks")
    for place in folded.to_dict()["places"]:
        table.add_row(place["tier"], str(place["store"]), f"{place['blocks']:,}")
    out.print(table)
    if output is not None:
        out.print(f"wrote {output}")
