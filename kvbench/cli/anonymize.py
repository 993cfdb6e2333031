"""``kvbench trace anonymize``: a trace that can be handed on."""

from __future__ import annotations

from pathlib import Path

import click

from kvbench.cli.jsonout import print_json
from kvbench.errors import ConfigError


@click.command(
    epilog="""\b
Examples:
  head -c 32 /dev/urandom > trace.key
  kvbench trace anonymize log.arrow --key-file trace.key --block-tokens 16 -o public.arrow
  kvbench trace anonymize log.arrow --key-file trace.key -o public.arrow --coarsen 1s --drop model"""
)
@click.argument("source", metavar="TRACE")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="The secret: a file of 16 bytes or more. The same one gives the same ids, another one different ids.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="What to write.")
@click.option(
    "--block-tokens",
    type=int,
    metavar="N",
    help="Tokens of a block; what is shared within one can no longer be told.  [default: what the file says]",
)
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave out a column, such as model; repeatable.")
@click.option("--coarsen", metavar="TIME", help="Round arrivals and think times down to multiples of this, as 1s.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def anonymize(
    source: str,
    key_file: Path,
    output: Path,
    block_tokens: int | None,
    drop: tuple[str, ...],
    coarsen: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Replace tokens, block ids and names in TRACE by keyed ids that say nothing.

    Only the holder of the key can tie them to content. Rows share an id exactly where they shared the
    prompt up to there, partial last blocks included, so every hit stays as it was. Times, lengths, models
    and categories are kept unless told otherwise.
    """
    from dataclasses import asdict

    from kvbench.trace.anonymize import anonymize_trace, read_key

    report = anonymize_trace(
        source,
        output,
        key=read_key(key_file),
        block_tokens=block_tokens,
        drop=drop,
        coarsen_ns=1 if coarsen is None else _coarsen_ns(coarsen),
        force=force,
    )
    if as_json:
        print_json(asdict(report))
        return
    size = "" if report.block_tokens is None else f", ids of blocks of {report.block_tokens:,} tokens"
    click.echo(f"{source}: {report.rows:,} rows{size}")
    for what, columns in (
        ("keyed", report.keyed),
        ("gone", report.dropped),
        (f"kept, times rounded down to {coarsen}" if coarsen else "kept as it was", report.kept),
    ):
        click.echo(f"{what}: {', '.join(columns) or 'nothing'}")
    click.echo(f"wrote {output}")


def _coarsen_ns(text: str) -> int:
    from kvbench.units import parse_duration

    try:
        return parse_duration(text)
    except ConfigError as error:
        raise ConfigError(f"--coarsen: {error}") from None
