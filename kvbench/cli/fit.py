"""``kvbench fit``: parameters of models from measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvbench.cli.jsonout import print_json
from kvbench.cli.parts import PartType
from kvbench.cli.root import registry_of
from kvbench.specs import ComputeModelSpec, DeviceSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.fitting.fitted import Fit


@click.group()
def fit() -> None:
    """Fit a compute model or a device to what was measured, and say how well it fits."""


def _output_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--force", is_flag=True, help="Overwrite files that exist."),
        click.option(
            "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the parameters as TOML, too."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables."),
        click.option(
            "--column",
            "columns",
            multiple=True,
            metavar="NAME=COLUMN",
            help="What the file calls a column, once for each: --column ms=ttft.",
        ),
    ):
        command = option(command)
    return command


@fit.command(
    epilog="""\b
Examples:
  kvbench fit compute steps.csv --model quadratic
  kvbench fit compute bench.jsonl --model fixed,prompt_ms=0 --column new_tokens=prompt_len --column ms=ttft
  kvbench fit compute steps.parquet --model roofline,model=Llama-3.1-8B,gpu=h100-sxm -o compute.toml"""
)
@click.argument("measured", type=click.Path(path_type=Path))
@click.option(
    "--model", required=True, type=PartType(ComputeModelSpec), help="The compute model; what is given is not fitted."
)
@click.option(
    "--batch-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows are of whole prompts, which are computed in steps of at most so many tokens.  [default: one step]",
)
@click.option(
    "--engine", metavar="TEXT", help="Whose times these are, as in 'vLLM 0.33.0'; it is kept with the parameters."
)
@_output_options
@click.pass_context
def compute(
    ctx: click.Context,
    measured: Path,
    model: str,
    batch_tokens: int | None,
    engine: str | None,
    columns: tuple[str, ...],
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Fit the numbers of a compute model to measured steps.

    MEASURED is CSV, JSON lines or Parquet, a row a step. Columns: seconds, ms, us or ns; new_tokens,
    context_tokens or cached_tokens before them, prompts (so many equal ones at once); decodes, and
    decode_context, the tokens of their context in all (or context_tokens of each); held_tokens and
    capacity_tokens of the GPU. What is missing is 0.

    The fit makes relative errors small, so that short steps count like long ones. Parameters stay at
    least 0 where the model asks for it.
    """
    from kvbench.fitting.compute import fit_compute
    from kvbench.pairs import key_values

    _check(output, force)
    named = key_values(columns, "--column")
    found = fit_compute(registry_of(ctx), measured, model, columns=named, batch_tokens=batch_tokens, engine=engine)
    _show(found, as_json, output, force)


@fit.command(
    epilog="""\b
Examples:
  kvbench fit device transfers.csv --device cpu-pcie5
  fio --output-format=json job.fio > fio.json; kvbench fit device fio.json --device nvme-gen4 --tier nvme
  nixlbench … > nixl.txt; kvbench fit device nixl.txt --device rdma-400g,read_latency_us=10"""
)
@click.argument("measured", type=click.Path(path_type=Path))
@click.option(
    "--device",
    required=True,
    type=PartType(DeviceSpec),
    help="Whose other figures are taken; what is given is not fitted.",
)
@click.option(
    "--tier", default="TIER", show_default=True, metavar="NAME", help="The tier in the option that is printed."
)
@_output_options
@click.pass_context
def device(
    ctx: click.Context,
    measured: Path,
    device: str,
    tier: str,
    columns: tuple[str, ...],
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Fit bandwidth and latency of a device to measured operations.

    MEASURED is CSV, JSON lines or Parquet, a row an operation: bytes; seconds, ms, us or ns; operation
    (read or write; read without it); in_flight, the operations that ran at once (1 without it). Or it
    is what fio with JSON for its output format, or nixlbench, printed.
    """
    from kvbench.fitting.device import fit_device
    from kvbench.pairs import key_values

    _check(output, force)
    named = key_values(columns, "--column")
    _show(fit_device(registry_of(ctx), measured, device, columns=named, tier=tier), as_json, output, force)


def _check(output: Path | None, force: bool) -> None:
    """Refuse an output before the fit, not after it."""
    if output is not None:
        from kvbench.atomic import check_writable

        check_writable(output, force)
    elif force:
        raise click.UsageError("--force has no effect without --output")


def _show(found: Fit, as_json: bool, output: Path | None, force: bool) -> None:
    if output is not None:
        from kvbench.atomic import atomic_path

        with atomic_path(output, force) as path:
            path.write_text(found.toml, encoding="utf-8")
    if as_json:
        print_json(found.to_dict())
        return
    from kvbench.cli.fittables import print_fit

    print_fit(found)
    if output is not None:
        click.echo(f"wrote {output}, to be used with: {found.use_of_file(output)}")
