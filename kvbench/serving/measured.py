"""Measured rows from a file: CSV, JSON lines or Parquet, with errors that name file, row and value."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvbench.errors import ConfigError, reason, shorten
from kvbench.plugins import did_you_mean
from kvbench.units import DURATION_UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TIMES = {"seconds": "s", "ms": "ms", "us": "us", "ns": "ns"}
"""Columns that a time can stand in, and their units."""

LARGEST = 2.0**48
"""Of a count of tokens or bytes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Rows of a file, cell by cell as they stand there.

    ``name``     of the file, for errors; ``rows`` by column; ``numbers`` of the rows in the file, from 1.
    ``renamed``  the columns of the file by what they are taken for.
    """

    name: str
    rows: list[dict[str, Any]]
    numbers: list[int]
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """What is there, by the names they are taken for."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def has(self, column: str) -> bool:
        """Whether any row has a value there."""
        return any(row.get(column) not in (None, "") for row in self.rows)

    def only(self, rows: Sequence[int]) -> Measured:
        """Some of the rows, by their places."""
        return Measured(self.name, [self.rows[at] for at in rows], [self.numbers[at] for at in rows], self.renamed)

    def error(self, at: int, column: str, value: object, rule: str) -> ConfigError:
        """The error for one cell."""
        shown = self.renamed.get(column, column)
        return ConfigError(f"{self.name}, row {self.numbers[at]}, {shown} = {shorten(value)}: {rule}")

    def counts(self, column: str, default: int | None = None, least: int = 0) -> list[int]:
        """A column of whole numbers; ``default`` where a cell is empty or the column is missing."""
        values = []
        for at in range(len(self.rows)):
            number = self._number(at, column, default)
            if not (number.is_integer() and least <= number <= LARGEST):
                raise self.error(at, column, self.rows[at].get(column), f"must be a whole number, at least {least}")
            values.append(int(number))
        return values

    def floats(self, column: str, default: float | None = None, least: float = 0.0) -> list[float]:
        """A column of numbers; ``default`` where a cell is empty or the column is missing."""
        values = []
        for at in range(len(self.rows)):
            number = self._number(at, column, default)
            if not number >= least:
                raise self.error(at, column, self.rows[at].get(column), f"must be at least {least:g}")
            values.append(number)
        return values

    def times_ns(self) -> list[float]:
        """The time of each row, from whichever column of :data:`TIMES` there is. All are above 0."""
        given = [name for name in TIMES if self.has(name)]
        if len(given) != 1:
            raise ConfigError(
                f"{self.name}: {'no' if not given else 'more than one'} column of times ({', '.join(given or TIMES)}); "
                f"the columns are {', '.join(self.columns)}: say which it is, as in --column ms=NAME"
            )
        scale = DURATION_UNITS[TIMES[given[0]]]
        values = []
        for at in range(len(self.rows)):
            number = self._number(at, given[0], None)
            if number <= 0:
                raise self.error(at, given[0], self.rows[at][given[0]], "a time is above 0")
            values.append(number * scale)
        return values

    def _number(self, at: int, column: str, default: float | None) -> float:
        value = self.rows[at].get(column)
        if value is None or value == "":
            if default is None:
                shown = self.renamed.get(column, column)
                raise ConfigError(f"{self.name}, row {self.numbers[at]}: {shown} is missing")
            return float(default)
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self.error(at, column, value, "must be a number")
        return number


def read_measured(path: Path, columns: Mapping[str, str] | None = None, known: Sequence[str] = ()) -> Measured:
    """The rows of ``path``: Parquet (``.parquet``), JSON lines (``.jsonl``, ``.json``), else CSV, where
    lines that begin with ``#`` are comments.

    ``columns``  what the file calls the columns of ``known`` and of :data:`TIMES`.

    Raises ConfigError for a file that cannot be read, has no rows, or lacks such a column.
    """
    renamed = dict(columns or {})
    for name in renamed:
        if name not in (*known, *TIMES):
            raise ConfigError(f"--column {name}: unknown column; {did_you_mean(name, (*known, *TIMES))}")
    try:
        if path.suffix == ".parquet":
            rows, numbers = _parquet(path)
        elif path.suffix in (".jsonl", ".json", ".ndjson"):
            rows, numbers = _json_lines(path)
        else:
            rows, numbers = _csv(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; give CSV, JSON lines (.jsonl) or Parquet (.parquet)") from None
    if not rows:
        raise ConfigError(f"{path}: has no rows")
    measured = Measured(str(path), rows, numbers, renamed)
    for name, own in renamed.items():
        if own not in measured.columns:
            raise ConfigError(f"{path}: has no column {own!r} (--column {name}); {did_you_mean(own, measured.columns)}")
    for row in rows:
        row.update({name: row[own] for name, own in renamed.items() if own in row})
    return measured


def _csv(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = [(number, line) for number, line in enumerate(file, 1) if line.strip() and not line.startswith("#")]
    if not lines:
        return [], []
    try:
        header, *cells = csv.reader((line for _, line in lines), strict=True)
    except csv.Error as error:
        raise ConfigError(f"{path}: not valid CSV: {error}") from None
    names = [name.strip() for name in header]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path}: two columns have one name: {', '.join(names)}")
    for at, row in enumerate(cells, 1):
        if len(row) != len(names):
            raise ConfigError(f"{path}, row {at}: has {len(row)} cells, but the header names {len(names)} columns")
    return [dict(zip(names, (cell.strip() for cell in row), strict=True)) for row in cells], list(
        range(1, len(cells) + 1)
    )


def _json_lines(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    import msgspec

    rows, numbers = [], []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}, row {number}: not valid JSON: {error}") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{path}, row {number} = {shorten(row)}: must be an object")
        rows.append(row)
        numbers.append(number)
    return rows, numbers


def _parquet(path: Path) -> tuple[list[dict[str, Any]], list[int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except pa.ArrowException as error:
        raise ConfigError(f"{path}: not a Parquet file that can be read: {error}") from None
    return rows, list(range(1, len(rows) + 1))
