"""Sweeps side by side, cell by cell."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kvbench.errors import ConfigError, OutputError
from kvbench.results.compare import Comparison, compare_runs
from kvbench.results.parquet import read_manifest
from kvbench.results.repeats import leaves
from kvbench.results.runfile import PARQUET_MAGIC, Run
from kvbench.results.thresholds import broken_limits, parse_limits
from kvbench.sweeps.file import read_sweep
from kvbench.sweeps.result import typed_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbench.results.thresholds import Broken
    from kvbench.sweeps.result import SweepCell, SweepResult


@dataclass(frozen=True, slots=True)
class SweepComparison:
    """What comparing sweeps found; the first is the reference.

    ``whole``      the sweeps themselves: in which settings, versions and files all their cells differ.
    ``cells``      the cells that all sweeps have, by the settings in which they vary: ``capacity=1000, policy=lru``.
                   Where an exact curve answered one and a replay another, of the figures that both have.
    ``left_over``  for each sweep its cells that not all have.
    """

    whole: Comparison
    cells: dict[str, Comparison]
    left_over: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> list[str]:
        """Of the files."""
        return [run.name for run in self.whole.runs]

    def differing(self, sweep: int) -> list[str]:
        """The cells in which sweep number ``sweep`` is not as the reference."""
        return [name for name, cell in self.cells.items() if not cell.is_equal(sweep)]

    @property
    def equal(self) -> bool:
        """Whether all sweeps have the same cells with the same figures."""
        return not any(self.left_over) and all(cell.equal for cell in self.cells.values())

    @property
    def figures(self) -> list[str]:
        """All that any cell has, by path in the summary."""
        return list(dict.fromkeys(path for cell in self.cells.values() for path in cell.figures))

    def broken_limits(self, texts: Sequence[str]) -> list[tuple[str, Broken]]:
        """The limits (``token_rate:-1%``) that cells break, with the cell. Raises ConfigError for an unknown figure,
        and where one of the sweeps has it of a cell and another has not."""
        limits = parse_limits(texts, self.figures)
        return [
            (name, broken)
            for name, cell in self.cells.items()
            for broken in broken_limits(cell, [limit for limit in limits if limit.figure in cell.figures])
        ]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        whole = self.whole.to_dict()
        kept = ("equal", "texts", "figures")
        return {
            "equal": self.equal,
            **{name: whole[name] for name in ("reference", "runs", "settings")},
            "cells": [
                {"cell": name, **{key: value for key, value in cell.to_dict().items() if key in kept}}
                for name, cell in self.cells.items()
            ],
            "left_over": [list(names) for names in self.left_over],
        }

    def table(self) -> pa.Table:
        """A row for each cell, sweep and figure: as of runs, with the column ``cell`` before."""
        tables = {name: cell.table() for name, cell in self.cells.items()}
        names = [name for name, table in tables.items() for _ in range(table.num_rows)]
        field = pa.field("cell", pa.string(), nullable=False)
        return pa.concat_tables(tables.values()).add_column(0, field, pa.array(names, pa.string()))


def is_sweep(path: str | Path) -> bool:
    """Whether a file is the table of a sweep. What cannot be read is none: whoever reads it will say why."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC and "axes" in read_manifest(path)
    except (OSError, OutputError, pa.ArrowException):
        return False


def compare_sweep_files(paths: Sequence[str | Path], *, different_traces: bool = False) -> SweepComparison:
    """Compare the sweeps of these files with the first of them, see :func:`compare_sweeps`."""
    for path in paths:
        if not is_sweep(path):
            raise ConfigError(f"{path} is no sweep, as others of the files are; compare sweeps with sweeps")
    return compare_sweeps([(str(path), read_sweep(path)) for path in paths], different_traces=different_traces)


def compare_sweeps(sweeps: Sequence[tuple[str, SweepResult]], *, different_traces: bool = False) -> SweepComparison:
    """Compare sweeps, each with its name, with the first: those of their cells that vary alike.

    Raises ConfigError for fewer than two sweeps, for sweeps of different traces unless ``different_traces``, and where
    they have no cell in common.
    """
    whole = compare_runs(
        [Run(name, sweep.manifest, {}, {}) for name, sweep in sweeps], different_traces=different_traces
    )
    cells = [{cell_name(cell): cell for cell in sweep.cells} for _, sweep in sweeps]
    common = [name for name in cells[0] if all(name in each for each in cells)]
    if not common:
        varied = "; ".join(f"{name} varies {', '.join(sweep.paths) or 'nothing'}" for name, sweep in sweeps)
        raise ConfigError(f"no cell is in all of the sweeps: {varied}")
    return SweepComparison(
        whole,
        {name: _compared(sweeps, [each[name] for each in cells], different_traces) for name in common},
        tuple(tuple(name for name in each if name not in common) for each in cells),
    )


def cell_name(cell: SweepCell) -> str:
    """A cell by the settings in which it varies."""
    named = [f"{path}={typed_text(value)}" for path, value in cell.axes.items() if value is not None]
    return ", ".join(named) or f"cell {cell.number}"


def _compared(
    sweeps: Sequence[tuple[str, SweepResult]], cells: Sequence[SweepCell], different_traces: bool
) -> Comparison:
    figures = [cell.figures for cell in cells]
    if len({cell.method for cell in cells}) > 1 and all(cell.status == "done" for cell in cells):
        figures = [{path: each[path] for path in each if all(path in other for other in figures)} for each in figures]
    runs = [
        Run(name, sweep.manifest, found, _texts(cell))
        for (name, sweep), cell, found in zip(sweeps, cells, figures, strict=True)
    ]
    return compare_runs(runs, different_traces=different_traces)


def _texts(cell: SweepCell) -> dict[str, str]:
    own = {name: value for name, value in asdict(cell).items() if name in ("status", "error") and value is not None}
    return own | {path: value for path, value in leaves(cell.summary or {}) if isinstance(value, str)}
