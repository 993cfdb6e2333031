"""The table of a sweep: a row a cell, or a row for all the seeds of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from kvbench.cli.tables import Printer, simple_table
from kvbench.errors import ConfigError
from kvbench.sweeps.groups import group_cells, pareto_front, parse_objectives
from kvbench.sweeps.overview import headers_of, headline, row_of, shown_figures
from kvbench.sweeps.plan import SEED
from kvbench.sweeps.result import count_of_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from kvbench.sweeps.groups import CellGroup
    from kvbench.sweeps.result import SweepResult

MAX_ROWS = 40
FRONT_MARK = " *"


def print_sweep(result: SweepResult, output: str | None, pareto: str | None) -> None:
    """Print what each setting gave, which of them are on the front of the figures ``pareto``, and what was written.

    Raises ConfigError for a figure that there is not, after the rest is printed.
    """
    out = Printer()
    groups = group_cells(result)
    try:
        objectives = parse_objectives(pareto, groups) if pareto is not None else []
    except ConfigError:
        # Which figures there are is known now that the cells have run; what they gave is shown all the same.
        print_sweep(result, output, None)
        raise
    front = pareto_front(groups, objectives) if objectives else []
    out.print(f"[bold]{escape(headline(result))}[/bold]")
    out.print()
    figures = shown_figures(groups, (each.figure for each in objectives))
    out.print(_table(result, groups[:MAX_ROWS], figures, front))
    if len(groups) > MAX_ROWS:
        out.print(f"… {len(groups) - MAX_ROWS:,} more rows: {'in the file' if output else 'give -o FILE or --json'}")
    out.print()
    if front:
        names = ", ".join(f"{'high' if each.more else 'low'} {each.name}" for each in objectives)
        out.print(f"* front of {names}: no other row is as good in all of them, and better in one")
        out.print(_table(result, front[:MAX_ROWS], figures))
        out.print()
    for line in _remarks(result, groups, output):
        out.print(escape(line))


def _table(
    result: SweepResult, groups: Sequence[CellGroup], figures: Sequence[str], front: Sequence[CellGroup] = ()
) -> Table:
    table = simple_table(*headers_of(result, figures))
    axes = sum(path != SEED for path in result.paths)
    for column in table.columns[1:axes]:
        column.justify = "left"
    marked = {id(group) for group in front}
    for group in groups:
        row = [escape(text) for text in row_of(result, group, figures)]
        row[max(axes, 1) - 1] += FRONT_MARK if id(group) in marked else ""
        table.add_row(*row)
    return table


def _remarks(result: SweepResult, groups: Sequence[CellGroup], output: str | None) -> list[str]:
    remarks = []
    if len(groups) < len(result.cells):
        remarks.append("mean of the seeds ± half of its 95 % interval, by Student's t")
    curves = sum(cell.method == "curve" for cell in result.cells)
    if curves:
        remarks.append(
            f"curve: {count_of_cells(curves)} answered by the exact LRU curve, which has rates and few other figures; "
            "--method replay has them all"
        )
    if result.failed:
        remarks.append(f"{count_of_cells(len(result.failed))} failed")
    if result.found:
        remarks.append(f"{count_of_cells(result.found)} known from before, and not run again")
    if output is not None:
        remarks.append(f"wrote {output}")
    if "total_s" in result.wall_clock:
        remarks.append(f"wall clock: {result.wall_clock['total_s']:.2f} s")
    return remarks
