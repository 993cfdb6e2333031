"""``kvbench trace make``: synthetic traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvbench.cli.parts import PartType, make_part
from kvbench.cli.progress import row_progress
from kvbench.cli.root import registry_of
from kvbench.specs import WorkloadSpec

if TYPE_CHECKING:
    from typing import Any

    from kvbench.plugins import Registry


@click.command(
    epilog="""\b
Examples:
  kvbench trace make chat -o chat.arrow
  kvbench trace make chat,sessions=1000,turns=8 --seed 7 -o big.arrow
  kvbench trace make rag,num_documents=50,docs_per_request=3,ids=token,separator_tokens=2 -o rag.arrow
  kvbench trace make agent,subagent_share=0.2,arrivals=gamma,cv=3 -o agent.arrow
  kvbench trace make zipf,arrivals=trace:chat.arrow,rate=10 -o zipf.arrow
  kvbench trace make --like conversation.arrow --rows 100000 -o more.arrow

kvbench plugins lists the workloads with their parameters."""
)
@click.argument("workload", type=PartType(WorkloadSpec), required=False)
@click.option("--like", metavar="TRACE", help="Make more of this trace instead, and say how close that came.")
@click.option("--rows", type=int, metavar="N", help="With --like: so many requests.  [default: as many as TRACE has]")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", required=True, help="What to write.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of every random choice.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--json", "as_json", is_flag=True, help="With --like: print the comparison as one JSON document.")
@click.pass_context
def make(
    ctx: click.Context, /, workload: str | None, like: str | None, rows: int | None, as_json: bool, **settings: Any
) -> None:
    """Make a synthetic trace from WORKLOAD and a seed, or one that is like a given trace."""
    from kvbench.errors import ConfigError

    if (workload is None) == (like is None):
        raise ConfigError("give either a WORKLOAD or --like TRACE")
    registry = registry_of(ctx)
    if like is not None:
        _make_like(registry, like, rows, as_json, **settings)
        return
    if rows is not None or as_json:
        raise ConfigError(f"{'--rows' if rows is not None else '--json'} has no effect without --like")
    assert workload is not None
    _make_workload(registry, workload, **settings)


def _make_workload(registry: Registry, workload: str, output: Path, seed: int, force: bool) -> None:
    from kvbench.trace.synth import unshared_prefixes
    from kvbench.trace.writer import TraceWriter

    _, made = make_part(registry, WorkloadSpec, workload, "WORKLOAD", seed)
    rows = 0
    with TraceWriter(output, made.schema, made.facts, force=force) as writer:
        for batch in made.batches():
            writer.write(batch)
            rows += batch.num_rows
    click.echo(f"wrote {output}: {rows:,} rows")
    if made.expected_token_rate is not None:
        click.echo(f"expected of a cache that holds everything: token rate {made.expected_token_rate:.2%}")
    for note in unshared_prefixes(made):
        click.echo(f"note: {note}", err=True)


def _make_like(
    registry: Registry, like: str, rows: int | None, as_json: bool, output: Path, seed: int, force: bool
) -> None:
    from kvbench.results.like.compare import make_like
    from kvbench.trace.reader import open_trace

    with row_progress("fit") as progress:
        report = make_like(open_trace(like), output, registry, seed=seed, rows=rows, force=force, progress=progress)
    if as_json:
        import json

        click.echo(json.dumps(report, indent=2))
        return
    _print_comparison(report)
    click.echo(f"wrote {output}")


def _print_comparison(report: dict[str, Any]) -> None:
    from kvbench.cli.tables import Printer, simple_table
    from kvbench.results.headline import percent
    from kvbench.results.like.compare import side_by_side

    texts = {
        "count": lambda value: f"{value:,}",
        "number": lambda value: f"{value:,.4g}" if abs(value) < 1 else f"{value:,.2f}",
        "share": percent,
    }
    table = simple_table("", "given", "made")
    for name, given, made, kind in side_by_side(report):
        table.add_row(name, *("–" if value is None else texts[kind](value) for value in (given, made)))
    out = Printer()
    out.print(table)
    out.print()
