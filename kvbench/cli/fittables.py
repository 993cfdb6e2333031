"""What ``kvbench fit`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from kvbench.cli.tables import Printer, add_remarks, simple_table
from kvbench.units import format_duration_ns

if TYPE_CHECKING:
    from kvbench.fitting.fitted import Fit

MAX_ROWS = 40


def print_fit(fit: Fit) -> None:
    """Print parameters, residuals row by row, how well it fits, and how to use it."""
    out = Printer()
    out.print(f"{fit.kind} {escape(fit.name)}, fitted to {len(fit.rows):,} rows of {escape(fit.source)}")
    out.print()
    parameters = simple_table("parameter", "value", "from")
    add_remarks(parameters)
    for parameter in fit.parameters:
        parameters.add_row(parameter.name, f"{parameter.value:g}", parameter.origin, escape(parameter.help))
    out.print(parameters)
    out.print()
    rows = simple_table("row", "measured", "fitted", "error")
    add_remarks(rows, "of")
    for row in fit.rows[:MAX_ROWS]:
        times = (format_duration_ns(round(row.measured_ns)), format_duration_ns(round(row.fitted_ns)))
        rows.add_row(str(row.row), *times, f"{round(100 * row.error, 2) + 0.0:+.2f} %", escape(row.what))
    out.print(rows)
    if len(fit.rows) > MAX_ROWS:
        out.print(f"… and {len(fit.rows) - MAX_ROWS:,} more (--json has them all)")
    out.print()
    squared = "–" if fit.r_squared is None else f"{fit.r_squared:.5f}"
    out.print(f"mean absolute error {100 * fit.mape:.2f} % (MAPE), largest {100 * fit.max_error:.2f} %, R² {squared}")
    for note in fit.notes:
        out.print(f"note: {escape(note)}")
    out.print()
    out.print(f"use it with: {escape(fit.use)}")
