"""``kvbench rollup``: a requests file by session, by worker or over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_ROWS = 20


@click.command(
    epilog="""\b
Examples:
  kvbench rollup requests.parquet --by session -o sessions.parquet
  kvbench rollup requests.parquet --by 60s -o minutes.csv
  kvbench rollup requests.parquet --by request -o requests.csv"""
)
@click.argument("requests", type=click.Path(path_type=Path))
@click.option(
    "--by",
    required=True,
    metavar="GRAIN",
    help="What makes a row: request (as they are), session, worker, or a time such as 60s: a slice of so much, from "
    "the first to the last arrival.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the table to .parquet or .csv.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
def rollup(requests: Path, by: str, output: str | None, force: bool, as_json: bool) -> None:
    """Add up the requests of a replay: hit rates and latencies by session, by worker, or over time.

    REQUESTS is what kvbench replay -o wrote. Requests count as in the summary of the run: those of its
    window that were looked up.
    """
    from kvbench.errors import ConfigError
    from kvbench.results.rollup import roll_up
    from kvbench.results.tidy import check_table, write_table

    if output is not None:
        check_table(output, force=force)
    elif force:
        raise ConfigError("--force has no effect without --output")
    table, manifest = roll_up(requests, by)
    if output is not None:
        write_table(table, output, {**manifest, "rollup": by}, force=force)
    if as_json:
        from kvbench.cli.jsonout import print_json

        print_json({**manifest, "rollup": by, "rows": table.to_pylist()})
        return
    _print(table, f"{requests} by {by}")
    if output is not None:
        click.echo(f"wrote {output}")


def _print(table: Any, title: str) -> None:
    """Print the columns that matter most, of the first rows."""
    from rich.markup import escape

    from kvbench.cli.tables import Printer, simple_table
    from kvbench.results.headline import duration, number, percent

    forms: dict[str, Callable[[Any], str]] = {
        **dict.fromkeys(("session_id", "request_id", "worker"), str),
        "start_ns": duration,
        **dict.fromkeys(("requests", "input_tokens", "hit_tokens"), number),
        **dict.fromkeys(("token_rate", "block_rate"), percent),
        **dict.fromkeys(("ttft_mean_ns", "ttft_p99_ns"), duration),
    }
    shown = [name for name in forms if name in table.column_names]
    out = Printer()
    out.print(f"[bold]{escape(title)}[/bold] · {len(table):,} rows")
    out.print()
    view = simple_table(*(name.removesuffix("_ns").replace("_", " ") for name in shown))
    for row in table.slice(0, MAX_ROWS).select(shown).to_pylist():
        view.add_row(*(escape(forms[name](row[name])) for name in shown))
    out.print(view)
    if len(table) > MAX_ROWS:
        out.print(f"… {len(table) - MAX_ROWS:,} more: see --output or --json")
