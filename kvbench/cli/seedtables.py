"""The table of a replay under several seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.cli.tables import Printer, simple_table
from kvbench.results.headline import SHOWN, percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbench.config import RunConfig
    from kvbench.results.repeats import Figure, RepeatResult


def print_repeats(result: RepeatResult, config: RunConfig) -> None:
    """Print what the figures that matter most are on average, and how sure that is."""
    out = Printer()
    seeds = result.seeds
    out.print(f"[bold]{config.trace}[/bold] · {len(seeds)} runs, seeds {seeds[0]} to {seeds[-1]}")
    out.print()
    table = simple_table("figure", "runs", "mean", "sd", "95 % interval", "± of mean")
    for path, (name, write) in SHOWN.items():
        figure = result.figures.get(path)
        if figure is not None:
            table.add_row(name, str(figure.n), write(figure.mean), write(figure.sd), *_interval(figure, write))
    out.print(table)
    out.print()
    out.print("interval of the mean by Student's t; all figures are in --json")
    if "total_s" in result.wall_clock:
        out.print(f"wall clock: {result.wall_clock['total_s']:.2f} s", style="dim")


def _interval(figure: Figure, write: Callable[[float | None], str]) -> tuple[str, str]:
    if figure.low is None or figure.high is None or figure.half is None:
        return "–", "–"
    share = figure.half / abs(figure.mean) if figure.mean else None
    return f"{write(figure.low)} … {write(figure.high)}", percent(share)
