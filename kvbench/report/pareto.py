"""The figures of a sweep's front: the first of the objectives over each of the others, a point a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbench.report.cellfigures import MAX_CELLS, MAX_SERIES, NAMED, marked, varied
from kvbench.report.cells import cells_of_sweep
from kvbench.report.charts import Sheet, plotter
from kvbench.report.figure import points
from kvbench.results.columnunits import unit_of
from kvbench.results.headline import SHOWN
from kvbench.sweeps.groups import group_cells, parse_objectives
from kvbench.sweeps.overview import headline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvbench.report.cells import Cell
    from kvbench.report.figure import Figure
    from kvbench.sweeps.groups import Objective
    from kvbench.sweeps.result import SweepResult

NS_PER_MS = 1e6


def pareto_plotter(path: str, objectives: str, *, force: bool) -> Callable[[SweepResult], None]:
    """A function that draws the front of ``objectives`` (as of :func:`parse_objectives`) in a sweep to ``path``. Raises
    ConfigError or OutputError at once where that cannot work."""

    def sheet(result: SweepResult) -> Sheet:
        first, *others = parse_objectives(objectives, group_cells(result))
        cells = cells_of_sweep(result)
        return Sheet(headline(result), [_front(cells, first, other) for other in others], result.manifest)

    return plotter(path, sheet, force=force)


def _front(cells: Sequence[Cell], across: Objective, up: Objective) -> Figure:
    """The front of two objectives, with the 95 % intervals over the seeds as error bars."""
    known = [cell for cell in cells if across.figure in cell.figures and up.figure in cell.figures]
    paths, x, y = varied(cells), _key(across), _key(up)
    rows: list[dict[str, Any]] = [
        {"configuration": cell.label(paths) or "all", **_values(cell, across, x), **_values(cell, up, y)}
        for cell in known[:MAX_CELLS]
    ]
    signs = [-1 if objective.more else 1 for objective in (across, up)]
    prices = [(signs[0] * row[x], signs[1] * row[y]) for row in rows]
    ends: dict[str, Any] = {name: key for name, key in _ends(x, y).items() if rows and all(key in row for row in rows)}
    notes = [
        f"{'High' if across.more else 'Low'} {across.name} and {'high' if up.more else 'low'} {up.name} are better; a "
        "line joins what nothing else beats in both.",
        "Bars are 95 % intervals over the seeds." if ends else "",
        f"The first {MAX_CELLS} of {len(known)} configurations." if len(known) > MAX_CELLS else "",
    ]
    return points(
        f"{x}-{y}".replace("_", "-"),
        f"{_title(across)} and {_title(up)}",
        marked(rows, prices),
        x=x,
        y=y,
        x_title=_title(across),
        y_title=_title(up),
        series="configuration" if len(rows) <= MAX_SERIES else None,
        label="configuration" if MAX_SERIES < len(rows) <= NAMED else None,
        x_percent=unit_of(across.figure) == "share",
        percent=unit_of(up.figure) == "share",
        front="on_front",
        note=" ".join(filter(None, notes)),
        **ends,
    )


def _ends(x: str, y: str) -> dict[str, str]:
    return {"x_low": f"{x}_low", "x_high": f"{x}_high", "low": f"{y}_low", "high": f"{y}_high"}


def _values(cell: Cell, objective: Objective, key: str) -> dict[str, float]:
    """A figure and the ends of its interval; times in milliseconds, of which none is below 0."""
    found = {key: cell.figures, f"{key}_low": cell.low, f"{key}_high": cell.high}
    values = {name: of[objective.figure] for name, of in found.items() if objective.figure in of}
    if unit_of(objective.figure) == "ns":
        return {name: max(value, 0) / NS_PER_MS for name, value in values.items()}
    return values


def _key(objective: Objective) -> str:
    return objective.figure.replace("_ns", "_ms").replace(".", "_")


def _title(objective: Objective) -> str:
    name = SHOWN[objective.figure][0] if objective.figure in SHOWN else objective.figure.replace("_ns", "")
    unit = unit_of(objective.figure)
    return f"{name} (ms)" if unit == "ns" else name
