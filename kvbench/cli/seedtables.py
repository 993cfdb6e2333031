"""The table of a replay under several seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.cli.tables import Printer, percent, simple_table
from kvbench.cli.timedtables import duration
from kvbench.units import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvbench.config import RunConfig
    from kvbench.results.repeats import Figure, RepeatResult


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}" if abs(value) < 10_000 else format_count(value)


SHOWN: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "rates.token": ("token rate", percent),
    "rates.block": ("block rate", percent),
    "workers.max_over_mean_requests": ("max/mean requests of a worker", _count),
    **{f"timed.ttft_ns.{name}": (f"TTFT {name}", duration) for name in ("mean", "p50", "p95", "p99")},
    **{f"timed.tpot_ns.{name}": (f"TPOT {name}", duration) for name in ("mean", "p95")},
    **{f"timed.e2e_ns.{name}": (f"E2E {name}", duration) for name in ("mean", "p95")},
    "timed.throughput.requests_per_s": ("requests a second", _count),
    "timed.throughput.output_tokens_per_s": ("output tokens a second", _count),
    "timed.goodput.requests_per_s": ("goodput, requests a second", _count),
    "timed.goodput.share_of_done": ("goodput, of those done", percent),
    "timed.workers.utilisation": ("workers busy", percent),
}
"""Figure → what it is called in the table, and how it is written."""


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
