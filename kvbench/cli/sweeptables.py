"""The table of a sweep: a row a cell, or a row for all the seeds of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from kvbench.cli.tables import Printer, simple_table
from kvbench.results.columnunits import unit_of
from kvbench.results.headline import SHOWN, duration, percent
from kvbench.sweeps.groups import group_cells, pareto_front, parse_objectives
from kvbench.sweeps.plan import SEED
from kvbench.sweeps.result import typed_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from kvbench.results.repeats import Figure
    from kvbench.sweeps.groups import CellGroup, Objective
    from kvbench.sweeps.result import SweepResult

MAX_ROWS = 40
ALWAYS = ("rates.token",)
TIMED = ("timed.ttft_ns.p99", "timed.goodput.share_of_done")
"""Figures of the table, where they are known."""

FRONT_MARK = "*"


def print_sweep(result: SweepResult, output: str | None, pareto: str | None) -> None:
    """Print what each setting gave, which of them are on the front of the figures ``pareto``, and what was written."""
    out = Printer()
    groups = group_cells(result)
    objectives = parse_objectives(pareto, groups) if pareto is not None else []
    front = pareto_front(groups, objectives) if objectives else []
    out.print(_headline(result))
    out.print()
    figures = _figures(groups, objectives)
    out.print(_table(result, groups[:MAX_ROWS], figures, front))
    if len(groups) > MAX_ROWS:
        out.print(f"… {len(groups) - MAX_ROWS:,} more rows: {'in the file' if output else 'give -o FILE or --json'}")
    out.print()
    if front:
        names = ", ".join(f"{'high' if each.more else 'low'} {each.name}" for each in objectives)
        out.print(f"front of {names}: no other row is as good in all of them, and better in one")
        out.print(_table(result, front[:MAX_ROWS], figures, []))
        out.print()
    for line in _remarks(result, groups, output):
        out.print(escape(line))


def _headline(result: SweepResult) -> str:
    source = result.manifest["trace"]["source_name"]
    parts = [f"[bold]{escape(source)}[/bold]"] if source else []
    parts.append(f"{len(result.cells):,} cell{'' if len(result.cells) == 1 else 's'}")
    axes = [f"{escape(path)} ({len(values):,})" for path, values in result.manifest["axes"].items()]
    return " · ".join([*parts, *([" × ".join(axes)] if axes else [])])


def _figures(groups: Sequence[CellGroup], objectives: Sequence[Objective]) -> list[str]:
    timed = [path for path in TIMED if any(path in group.figures for group in groups)]
    return list(dict.fromkeys([*ALWAYS, *timed, *(each.figure for each in objectives)]))


def _table(
    result: SweepResult, groups: Sequence[CellGroup], figures: Sequence[str], front: Sequence[CellGroup]
) -> Table:
    axes = [path for path in result.paths if path != SEED]
    seeds = SEED in result.paths
    headers = [*(axes or ["cell"]), *(["runs"] if seeds else []), *(_name(path) for path in figures), "method"]
    table = simple_table(*headers)
    for column in table.columns[1 : len(axes)]:
        column.justify = "left"
    marked = {id(group) for group in front}
    for group in groups:
        mark = f" {FRONT_MARK}" if id(group) in marked else ""
        names = [_axis(group.axes[path]) for path in axes] or [str(group.cells[0].number)]
        names[-1] += mark
        done = [cell for cell in group.cells if cell.status == "done"]
        table.add_row(
            *names,
            *([f"{len(done)}"] if seeds else []),
            *(_value(path, group.figures.get(path)) for path in figures),
            done[0].method if done else "failed",
        )
    return table


def _axis(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "–" if value is None else escape(typed_text(value))


def _name(path: str) -> str:
    return SHOWN[path][0] if path in SHOWN else path


def _value(path: str, figure: Figure | None) -> str:
    if figure is None:
        return "–"
    write = _writer(path)
    return write(figure.mean) if figure.half is None else f"{write(figure.mean)} ± {write(figure.half)}"


def _writer(path: str) -> Callable[[float | None], str]:
    if path in SHOWN:
        return SHOWN[path][1]
    unit = unit_of(path)
    if unit == "ns":
        return duration
    return percent if unit == "share" else lambda value: "–" if value is None else f"{value:,.6g}"


def _remarks(result: SweepResult, groups: Sequence[CellGroup], output: str | None) -> list[str]:
    remarks = []
    if len(groups) < len(result.cells):
        remarks.append("mean of the seeds ± half of its 95 % interval, by Student's t")
    curves = sum(cell.method == "curve" for cell in result.cells)
    if curves:
        remarks.append(
            f"{curves:,} cells are answered by the exact LRU curve, which has no figures but rates; --method replay "
            "has them all"
        )
    if result.failed:
        remarks.append(f"{len(result.failed):,} cells failed")
    if result.found:
        remarks.append(f"{result.found:,} cells were known from before, and not run again")
    if output is not None:
        remarks.append(f"wrote {output}")
    if "total_s" in result.wall_clock:
        remarks.append(f"wall clock: {result.wall_clock['total_s']:.2f} s")
    return remarks
