"""``kvbench trace make``: synthetic traces."""

from __future__ import annotations

from pathlib import Path

import click

from kvbench.cli.parts import PartType, make_part
from kvbench.cli.root import registry_of
from kvbench.specs import WorkloadSpec


@click.command(
    epilog="""\b
Examples:
  kvbench trace make chat -o chat.arrow
  kvbench trace make chat,sessions=1000,turns=8 --seed 7 -o big.arrow
  kvbench trace make agent,subagent_share=0.2,arrivals=gamma,cv=3 -o agent.arrow
  kvbench trace make zipf,arrivals=trace:chat.arrow,rate=10 -o zipf.arrow
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

    _, made = make_part(registry_of(ctx), WorkloadSpec, workload, "WORKLOAD", seed)
    rows = 0
    with TraceWriter(output, made.schema, made.facts, force=force) as writer:
        for batch in made.batches():
            writer.write(batch)
            rows += batch.num_rows
    click.echo(f"wrote {output}: {rows:,} rows")
    if made.expected_token_rate is not None:
        click.echo(f"expected of a cache that holds everything: token rate {made.expected_token_rate:.2%}")
