"""What ``kvbench compare --measured`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from kvbench.cli.tables import Printer, simple_table
from kvbench.cli.timedtables import TITLES
from kvbench.results.accuracy import STATISTICS
from kvbench.results.headline import duration, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from kvbench.results.accuracy import MeasuredComparison

REASONS = {
    "outside_the_window": "outside the run's window",
    "not_done_in_the_run": "not done in the run",
    "failed_in_the_measurement": "failed in the measurement",
    "in_the_run_alone": "in the run alone",
    "in_the_measurement_alone": "in the measurement alone",
}
"""Why requests are in no figure."""


def print_measured(comparison: MeasuredComparison, files: Sequence[str]) -> None:
    """Print how far the run is from the measurement, and what was compared."""
    out = Printer()
    engine = comparison.engine or "an engine that was not named (--engine)"
    out.print(escape(f"{comparison.run} beside {comparison.measured} ({comparison.source}) of {engine}"), style="bold")
    out.print(escape(f"predicted with {_timed_by(comparison)}, kvbench {comparison.manifest['kvbench']}"))
    out.print()
    for table in (_errors(comparison), _values(comparison)):
        out.print(table)
        out.print()
    for line in _lines(comparison):
        out.print(escape(line))
    for file in files:
        out.print(escape(f"wrote {file}"))


def _errors(comparison: MeasuredComparison) -> Table:
    """Errors of predicted against measured: above 0 where the replay is slower."""
    table = simple_table("error", "n", "MAPE", *STATISTICS, "Pearson", "Spearman")
    for name, found in comparison.accuracy.items():
        errors = [_signed(found.errors[each]) for each in STATISTICS]
        coefficients = [_coefficient(each) for each in (found.pearson, found.spearman)]
        table.add_row(TITLES[name], f"{found.n:,}", percent(found.mape), *errors, *coefficients)
    return table


def _values(comparison: MeasuredComparison) -> Table:
    table = simple_table("latency", "", *STATISTICS)
    for name, found in comparison.accuracy.items():
        for side, values in (("predicted", found.predicted_ns), ("measured", found.measured_ns)):
            table.add_row(TITLES[name], side, *(duration(values[each]) for each in STATISTICS))
    return table


def _lines(comparison: MeasuredComparison) -> list[str]:
    requests = comparison.requests
    left_out = [f"{requests[key]:,} {text}" for key, text in REASONS.items() if requests[key]]
    lines = [f"{requests['compared']:,} requests, matched by {comparison.matched_by}"]
    if left_out:
        lines.append(f"left out: {', '.join(left_out)}")
    cautions = [f"caution: {text}" for text in comparison.predicted["cautions"]]
    return [*lines, *cautions, *(f"note: {text}" for text in comparison.notes)]


def _signed(error: float | None) -> str:
    return "–" if error is None else f"{100 * error:+.2f} %"


def _coefficient(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _timed_by(comparison: MeasuredComparison) -> str:
    compute = comparison.predicted["compute"]
    parameters = [f"{key}={value}" for key, value in compute.items() if key != "name"]
    devices = [f"{tier} on {device['name']}" for tier, device in comparison.predicted["devices"].items()]
    model = [f"{key} {comparison.predicted[key]}" for key in ("model", "tp") if key in comparison.predicted]
    return ", ".join(["compute model " + ",".join([compute["name"], *parameters]), *model, *devices])
