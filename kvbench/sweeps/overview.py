"""What people see of a sweep: a row for each setting, with its figures that matter most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbench.results.columnunits import unit_of
from kvbench.results.headline import NOTHING, SHOWN, count, duration, percent
from kvbench.results.notebook import table_html
from kvbench.sweeps.groups import group_cells
from kvbench.sweeps.plan import SEED
from kvbench.sweeps.result import count_of_cells, typed_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kvbench.results.repeats import Figure
    from kvbench.sweeps.groups import CellGroup
    from kvbench.sweeps.result import SweepResult

ALWAYS = ("rates.token",)
TIMED = ("timed.ttft_ns.p99", "timed.goodput.share_of_done")
"""Figures that are shown where they are known."""


def headline(result: SweepResult) -> str:
    """The trace, the number of cells, and the axes with their numbers of values."""
    source = result.manifest["trace"]["source_name"]
    axes = " × ".join(f"{path} ({len(values):,})" for path, values in result.manifest["axes"].items())
    return " · ".join(part for part in (source, count_of_cells(len(result.cells)), axes) if part)


def shown_figures(groups: Sequence[CellGroup], others: Iterable[str] = ()) -> list[str]:
    """The figures of a table, ``others`` among them."""
    timed = [path for path in TIMED if any(path in group.figures for group in groups)]
    return list(dict.fromkeys([*ALWAYS, *timed, *others]))


def headers_of(result: SweepResult, figures: Sequence[str]) -> list[str]:
    """What the columns of :func:`row_of` are called."""
    runs = ["runs"] if SEED in result.paths else []
    return [
        *(_axes(result) or ["cell"]),
        *runs,
        *(SHOWN[each][0] if each in SHOWN else each for each in figures),
        "method",
    ]


def row_of(result: SweepResult, group: CellGroup, figures: Sequence[str]) -> list[str]:
    """The settings of a group, the runs that are done, its figures and how they were found."""
    names = [_axis(group.axes[path]) for path in _axes(result)] or [str(group.cells[0].number)]
    done = [cell for cell in group.cells if cell.status == "done"]
    runs = [str(len(done))] if SEED in result.paths else []
    values = [_value(path, group.figures.get(path)) for path in figures]
    return [*names, *runs, *values, done[0].method if done else "failed"]


def sweep_html(result: SweepResult) -> str:
    """The table of a sweep for a notebook."""
    groups = group_cells(result)
    figures = shown_figures(groups)
    rows = [row_of(result, group, figures) for group in groups]
    failed = f"{count_of_cells(len(result.failed))} failed" if result.failed else ""
    return table_html(headline(result), headers_of(result, figures), rows, failed)


def _axes(result: SweepResult) -> list[str]:
    return [path for path in result.paths if path != SEED]


def _axis(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return NOTHING if value is None else typed_text(value)


def _value(path: str, figure: Figure | None) -> str:
    if figure is None:
        return NOTHING
    write = _writer(path)
    return write(figure.mean) if figure.half is None else f"{write(figure.mean)} ± {write(figure.half)}"


def _writer(path: str) -> Callable[[float | None], str]:
    if path in SHOWN:
        return SHOWN[path][1]
    if unit_of(path) == "ns":
        return duration
    return percent if "rates." in path or "share" in path else count
