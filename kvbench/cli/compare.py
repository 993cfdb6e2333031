"""``kvbench compare``: runs with each other, or with what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbench.cli.jsonout import print_json
from kvbench.errors import EXIT_REGRESSION

if TYPE_CHECKING:
    from kvbench.results.compare import Comparison
    from kvbench.sweeps.compare import SweepComparison

MEASURED_ALONE = ("engine", "columns", "benchmark", "plot")
RUNS_ALONE = ("fail_if", "different_traces")


@click.command(
    epilog="""\b
Examples:
  kvbench compare before.parquet after.parquet
  kvbench compare before.json after.json --fail-if token_rate:-1% --fail-if ttft_p99:+20ms
  kvbench compare lru.parquet arc.parquet sieve.parquet -o figures.csv
  kvbench compare monday-sweep.parquet tuesday-sweep.parquet --fail-if token_rate:-1%
  kvbench compare run.parquet --measured bench.json --engine "vLLM 0.33.0" --plot scatter.html"""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--fail-if",
    multiple=True,
    metavar="FIGURE:±LIMIT",
    help="Exit with code 3 where a figure falls (-) or rises (+) by more than this against the reference: 1% of it, "
    "0.01, or 20ms; may be given several times.",
)
@click.option("--different-traces", is_flag=True, help="Compare runs of different traces all the same.")
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Compare one timed run with the requests of this file: what vLLM's bench serve --save-detailed, AIPerf "
    "(profile_export.jsonl) or GuideLLM wrote, or CSV, JSON lines or Parquet with columns such as ttft_ms.",
)
@click.option("--engine", metavar="TEXT", help='What was measured, with its version: "vLLM 0.33.0".')
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=COLUMN",
    help="What the measured file calls a column, once for each: --column ttft_ms=first_token.",
)
@click.option(
    "--benchmark", type=click.IntRange(min=1), metavar="N", help="Which one of a measured file that has several."
)
@click.option(
    "--plot", metavar="FILE", help="Draw predicted over measured: .html, .svg or .png; needs the extra 'report'."
)
@click.option(
    "-o", "--output", metavar="FILE", help="Write a row a run and figure, or a measured request, to .parquet or .csv."
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.pass_context
def compare(ctx: click.Context, /, runs: tuple[Path, ...], measured: Path | None, **settings: Any) -> None:
    """Compare RUNS with the first of them: figures side by side, what differs and where.

    RUNS are requests files (kvbench replay -o) or documents (--json), or all of them sweeps, which are
    compared cell by cell, by the settings that vary. Runs of different traces are refused. How long a
    replay took by the clock on the wall is no part of the comparison.

    With --measured, say how far one timed run is from what was measured: mean absolute percentage
    error (MAPE), errors of mean and percentiles, and correlation, of TTFT, TPOT and E2E.
    """
    from kvbench.errors import ConfigError

    alone, other = (RUNS_ALONE, "with") if measured is not None else (MEASURED_ALONE, "without")
    for name in alone:
        if settings[name]:
            option = "--column" if name == "columns" else "--" + name.replace("_", "-")
            raise ConfigError(f"{option} has no effect {other} --measured")
    if measured is not None:
        _compare_measured(runs, measured, settings)
        return
    ctx.exit(_compare_runs(runs, settings))


def _compare_runs(paths: tuple[Path, ...], settings: dict[str, Any]) -> int:
    """Compare, print and write; the exit code."""
    from kvbench.errors import ConfigError
    from kvbench.results.compare import compare_runs
    from kvbench.results.runfile import read_run
    from kvbench.results.thresholds import broken_limits, parse_limits
    from kvbench.results.tidy import check_table
    from kvbench.sweeps.compare import compare_sweep_files, is_sweep

    output, force = settings["output"], settings["force"]
    if output is not None:
        check_table(output, force=force)
    elif force:
        raise ConfigError("--force has no effect without --output")
    if any(is_sweep(path) for path in paths):
        return _show_sweeps(compare_sweep_files(paths, different_traces=settings["different_traces"]), settings)
    comparison = compare_runs([read_run(path) for path in paths], different_traces=settings["different_traces"])
    broken = broken_limits(comparison, parse_limits(settings["fail_if"], list(comparison.figures)))
    if output is not None:
        _write(comparison, output, force=force)
    if settings["as_json"]:
        from dataclasses import asdict

        print_json(comparison.to_dict() | {"failed": [asdict(each) for each in broken]})
    else:
        from kvbench.cli.comparetables import print_comparison

        print_comparison(comparison, broken, [output] if output is not None else [])
    return EXIT_REGRESSION if broken else 0


def _show_sweeps(comparison: SweepComparison, settings: dict[str, Any]) -> int:
    """Print and write what comparing sweeps found; the exit code."""
    broken = comparison.broken_limits(settings["fail_if"])
    if settings["output"] is not None:
        _write(comparison, settings["output"], force=settings["force"])
    if settings["as_json"]:
        from dataclasses import asdict

        print_json(comparison.to_dict() | {"failed": [{"cell": name, **asdict(each)} for name, each in broken]})
    else:
        from kvbench.cli.comparetables import print_sweeps

        print_sweeps(comparison, broken, [settings["output"]] if settings["output"] is not None else [])
    return EXIT_REGRESSION if broken else 0


def _write(comparison: Comparison | SweepComparison, path: str, *, force: bool) -> None:
    from kvbench.results.compare import Comparison
    from kvbench.results.tidy import write_table

    runs = comparison.runs if isinstance(comparison, Comparison) else comparison.whole.runs
    write_table(comparison.table(), path, {"compared": [run.manifest for run in runs]}, force=force)


def _compare_measured(paths: tuple[Path, ...], measured: Path, settings: dict[str, Any]) -> None:
    """Compare one run with what was measured, print and write."""
    from kvbench.errors import ConfigError
    from kvbench.pairs import key_values
    from kvbench.results.accuracy import compare_measured
    from kvbench.results.measured import read_measured_requests
    from kvbench.results.tidy import check_table, write_table

    if len(paths) != 1:
        raise ConfigError(f"--measured compares one run with what was measured; {len(paths)} are given")
    force, plot, output = settings["force"], settings["plot"], settings["output"]
    if output is not None:
        check_table(output, force=force)
    elif force and plot is None:
        raise ConfigError("--force has no effect without --output or --plot")
    draw = None
    if plot is not None:
        from kvbench.report.scatter import scatter_plotter

        draw = scatter_plotter(plot, force=force)
    named = key_values(settings["columns"], "--column")
    requests = read_measured_requests(measured, columns=named, benchmark=settings["benchmark"])
    comparison = compare_measured(paths[0], requests, engine=settings["engine"])
    if output is not None:
        write_table(comparison.pairs, output, comparison.to_dict() | {"compared": [comparison.manifest]}, force=force)
    if draw is not None:
        draw(comparison)
    if settings["as_json"]:
        print_json(comparison.to_dict())
        return
    from kvbench.cli.measuredtables import print_measured

    print_measured(comparison, [file for file in (output, plot) if file is not None])
