"""What a sweep found: its cells, and the table that they make."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from kvbench.results.columnunits import UNIT_KEY, unit_of
from kvbench.results.repeats import NAMED_BY, leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kvbench.sweeps.journal import Method

OWN_COLUMNS: Mapping[str, Any] = {
    "cell": pa.int32(),
    "config_hash": pa.string(),
    "status": pa.string(),
    "error": pa.string(),
    "method": pa.string(),
}
JSON_COLUMNS = ("settings", "summary")


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One cell.

    ``number``       from 0.
    ``config_hash``  of all that decides its figures; equal for equal cells of any sweep.
    ``axes``         setting path → the value that this cell has.
    ``settings``     all that it was given, tables as tables; what is not there is at its default.
    ``status``       ``done`` or ``failed``; then ``error`` says why, and ``summary`` is None.
    ``method``       ``replay``, or ``curve``: the exact LRU curve answered it, which has not all figures.
    ``summary``      as of a replay.
    """

    number: int
    config_hash: str
    axes: dict[str, Any]
    settings: dict[str, Any]
    status: str
    error: str | None
    method: Method
    summary: dict[str, Any] | None

    @property
    def figures(self) -> dict[str, float]:
        """Every number of the summary by its path; those of single workers and of lists without names left out."""
        found = leaves(_without_lists(self.summary or {}))
        return {path: value for path, value in found if isinstance(value, (int, float)) and not isinstance(value, bool)}


@dataclass(slots=True)
class SweepResult:
    """The outcome of a sweep.

    ``manifest``    versions, facts of the trace, settings that all cells share, axes.
    ``cells``       in their order. They and the manifest are equal for equal sweeps, wherever they ran.
    ``found``       how many cells were known from before, and not run again.
    ``wall_clock``  how long it took; in no file.
    """

    manifest: dict[str, Any]
    cells: list[SweepCell]
    found: int = 0
    wall_clock: dict[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from kvbench.sweeps.overview import sweep_html

        return sweep_html(self)

    @property
    def failed(self) -> list[SweepCell]:
        """The cells without figures."""
        return [cell for cell in self.cells if cell.status != "done"]

    @property
    def paths(self) -> list[str]:
        """The settings in which cells differ."""
        return list(self.manifest["axes"])

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {**self.manifest, "cells": [asdict(cell) for cell in self.cells], "wall_clock": self.wall_clock}

    def table(self) -> pa.Table:
        """A row a cell: what it is, its varied settings, its figures, and all of both as JSON. Each column's metadata
        has its ``kind`` (cell, setting, figure) and ``path``, and the ``unit`` of a figure that has one."""
        cells = self.cells
        columns = [
            _column(name, [getattr(cell, "number" if name == "cell" else name) for cell in cells], "cell", type=kind)
            for name, kind in OWN_COLUMNS.items()
        ]
        for path in self.paths:
            values = plain_values([cell.axes.get(path) for cell in cells])
            columns.append(_column(column_name(path), values, "setting", path))
        taken = {field.name for field, _ in columns} | set(JSON_COLUMNS)
        figures = [cell.figures for cell in cells]
        for path in dict.fromkeys(path for each in figures for path in each):
            name = column_name(path)
            name = f"summary_{name}" if name in taken else name
            columns.append(_column(name, [each.get(path) for each in figures], "figure", path, unit_of(path)))
        columns += [
            _column(name, [_json(getattr(cell, name)) for cell in cells], "cell", type=pa.string())
            for name in JSON_COLUMNS
        ]
        return pa.table([array for _, array in columns], schema=pa.schema([field for field, _ in columns]))


def count_of_cells(count: int) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count:,} cell{'' if count == 1 else 's'}"


def column_name(path: str) -> str:
    """What the column of a setting or a figure is called."""
    return path.replace(".", "_")


def plain_values(values: Sequence[Any]) -> list[int | float | str | None]:
    """Values of one setting for a column: numbers where all are, else text as it is typed."""
    given = [value for value in values if value is not None]
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in given):
        return list(values)
    return [None if value is None else typed_text(value) for value in values]


def typed_text(value: Any) -> str:
    """A setting as it is typed: ``s3-fifo,small=0.1``, ``gpu,capacity=1000; cpu,capacity=9000``."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "; ".join(typed_text(each) for each in value)
    if isinstance(value, dict):
        name = [str(value["name"])] if "name" in value else []
        return ",".join([*name, *_pairs({key: each for key, each in value.items() if key != "name"})])
    return str(value)


def _pairs(table: Mapping[str, Any]) -> Iterable[str]:
    for key, value in table.items():
        if isinstance(value, dict):
            named = value.get("name")
            if named is not None:
                yield f"{key}={named}"
            yield from (f"{key}.{inner}={typed_text(each)}" for inner, each in value.items() if inner != "name")
        elif isinstance(value, list):
            yield f"{key}={'+'.join(map(str, value))}"
        elif value is not None:
            yield f"{key}={typed_text(value)}"


def _column(
    name: str, values: list[Any], kind: str, path: str = "", unit: str | None = None, *, type: Any = None
) -> tuple[Any, Any]:
    if type is None:
        given = [value for value in values if value is not None]
        type = pa.string() if any(isinstance(value, str) for value in given) else pa.float64()
        if given and all(isinstance(value, int) for value in given):
            type = pa.int64()
    metadata = {"kind": kind, "path": path or name} | ({UNIT_KEY: unit} if unit is not None else {})
    return pa.field(name, type, metadata=metadata), pa.array(values, type)


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _without_lists(node: Any) -> Any:
    """A summary without lists whose records have no name, or are of single stores: these have no bound."""
    if not isinstance(node, dict):
        return node
    kept = {}
    for key, value in node.items():
        if isinstance(value, list):
            if not value or not all(isinstance(each, dict) and _is_named(each) for each in value):
                continue
            kept[key] = [_without_lists(each) for each in value]
        else:
            kept[key] = _without_lists(value)
    return kept


def _is_named(record: Mapping[str, Any]) -> bool:
    return "store" not in record and any(name in record for name in NAMED_BY)
