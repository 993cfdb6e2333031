"""Foreign tables, piece by piece, and the rows of a trace that are made of them.

A piece is some rows of a file, with their numbers and what is wrong with rows that could not even be taken
apart. :class:`Rows` gathers the columns of the trace and the rows that have to be left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import TraceError
from kvbench.trace.columns import numbers
from kvbench.trace.formats import ROW_COLUMN
from kvbench.trace.formats.values import Values
from kvbench.trace.schema import make_schema

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from kvbench.trace.formats import ReadLog
    from kvbench.trace.formats.ids import IdLists
    from kvbench.trace.formats.values import Reader

NO_TEXT = "\ufdd0"
"""Stands for bytes that are not UTF-8; a character that Unicode keeps out of text."""
NOT_UTF8 = "must be UTF-8 text"
NUMBER_OR_TEXT = "must be a number or a text"


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that cannot be taken apart: its number in the file, the value at fault, and the rule."""

    number: int
    field: str
    value: object
    rule: str


class Piece(Protocol):
    """Some rows of a file. ``numbers`` are theirs in the file, from 1; ``broken`` are rows between them."""

    numbers: npt.NDArray[np.uint64]
    broken: list[Broken]

    def names(self) -> Collection[str]:
        """The columns there are."""

    def texts(self, name: str) -> Values:
        """A column as text: null where there is nothing, or no column ``name``."""

    def lists(self, name: str, reader: IdLists) -> Values:
        """A column of lists of ids."""

    def count(self, counter: Counter[str], used: Collection[str]) -> None:
        """Adds to ``counter`` how many rows have each of the columns that are not ``used``."""


@dataclass(slots=True)
class ArrowPiece:
    """Rows of an Arrow table, whose columns may be of any type."""

    numbers: npt.NDArray[np.uint64]
    table: pa.RecordBatch
    broken: list[Broken] = field(default_factory=list)

    def names(self) -> Collection[str]:
        return [str(name) for name in self.table.schema.names]

    def texts(self, name: str) -> Values:
        if name not in self.table.schema.names:
            return Values(pa.nulls(self.table.num_rows, pa.string()))
        column = self.table.column(name)
        try:
            if pa.types.is_boolean(column.type):
                raise pa.ArrowInvalid
            if pa.types.is_string(column.type):
                if pc.all(pc.string_is_ascii(column)).as_py() is not False:
                    return Values(column)
                column = column.cast(pa.binary())  # the way back finds what is not UTF-8
            column = column.cast(pa.string())
            bad = pc.fill_null(pc.match_substring(column, NO_TEXT), False).to_numpy(zero_copy_only=False)
            return Values(column, {row: (column[row].as_py(), NOT_UTF8) for row in np.flatnonzero(bad).tolist()})
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return texts_of(_plain(column))

    def lists(self, name: str, reader: IdLists) -> Values:
        column = self.table.column(name)
        if pa.types.is_list(column.type) and pa.types.is_integer(column.type.value_type):
            try:
                return Values(column.cast(reader.kind))
            except pa.ArrowInvalid:
                pass  # a negative or too large one
        if pa.types.is_string(column.type):
            texts = self.texts(name)
            values = reader(texts.column)
            return Values(values.column, values.refused | texts.refused)
        return reader.of_lists(_plain(column))

    def count(self, counter: Counter[str], used: Collection[str]) -> None:
        for name, column in zip(self.table.schema.names, self.table.columns, strict=True):
            if name not in used and (there := len(column) - column.null_count):
                counter[name] += there


def _plain(column: pa.Array) -> list[object]:
    """The values of a column as Python's; text that is not UTF-8 as bytes."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return list(column.cast(pa.binary()).to_pylist())


@dataclass(slots=True)
class JsonPiece:
    """Rows that are JSON objects. A column is a key, or keys joined by dots for what lies deeper."""

    numbers: npt.NDArray[np.uint64]
    rows: list[dict[str, Any]]
    broken: list[Broken] = field(default_factory=list)

    def names(self) -> Collection[str]:
        found: dict[str, None] = {}
        for row in self.rows:
            for name, value in row.items():
                found[name] = None
                if isinstance(value, dict):
                    found.update(dict.fromkeys(f"{name}.{inner}" for inner in value))
        return found

    def column(self, name: str) -> list[object]:
        """The values of a column as they are, None where there is nothing."""
        if "." not in name:
            return [row.get(name) for row in self.rows]
        return [_deep(row, name) for row in self.rows]

    def texts(self, name: str) -> Values:
        return texts_of(self.column(name))

    def lists(self, name: str, reader: IdLists) -> Values:
        return reader.of_lists(self.column(name))

    def count(self, counter: Counter[str], used: Collection[str]) -> None:
        outer = {name.split(".")[0] for name in used} | set(used)
        for row in self.rows:
            for name, value in row.items():
                if name not in outer and value is not None:
                    counter[name] += 1


def _deep(row: dict[str, Any], name: str) -> object:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def texts_of(values: Sequence[object]) -> Values:
    """Plain values as text; refused where they are neither text nor number."""
    texts: list[str | None] = []
    refused: dict[int, tuple[object, str]] = {}
    for row, value in enumerate(values):
        text = None
        if isinstance(value, str):
            text = value
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            text = str(value)
        elif value is not None:
            rule = NOT_UTF8 if isinstance(value, bytes) else NUMBER_OR_TEXT
            refused[row] = (value, rule)
        if text is not None and not text.isascii():
            text, rule = _encodable(text)
            if rule:
                refused[row] = (value, rule)
        texts.append(text)
    return Values(pa.array(texts, pa.string()), refused)


def _encodable(text: str) -> tuple[str | None, str]:
    try:
        text.encode()
    except UnicodeEncodeError:
        return None, NOT_UTF8
    return text, ""


class Rows:
    """The columns of a trace that are made of one piece, and the rows of it that are refused."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.columns: dict[str, pa.Array] = {}
        self._refused: dict[int, tuple[str, object, str]] = {}
        self._wanted: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.piece.numbers)

    def read(self, column: str, name: str, reader: Reader, *, required: bool = False) -> None:
        """``column`` of the trace from the foreign column ``name``; where ``required``, it is there in each row."""
        self.take(column, name, Values(self.values(name, reader)), required=required)

    def values(self, name: str, reader: Reader) -> pa.Array:
        """The foreign column ``name`` as ``reader`` reads it, for whatever it says of other columns."""
        texts = self.piece.texts(name)
        self.refuse_all(name, texts)
        values = reader(texts.column)
        self.refuse_all(name, values)
        return values.column

    def take(self, column: str, name: str, values: Values, *, required: bool = False) -> None:
        """``column`` of the trace from values of the foreign column ``name``."""
        self.refuse_all(name, values)
        self.columns[column] = values.column
        if required and values.column.null_count:
            for row in np.flatnonzero(values.column.is_null().to_numpy(zero_copy_only=False)).tolist():
                self.refuse(row, name, None, "is missing")

    def refuse_all(self, name: str, values: Values) -> None:
        for row, (value, rule) in values.refused.items():
            self.refuse(row, name, value, rule)

    def refuse(self, row: int, name: str, value: object, rule: str) -> None:
        """Leave out a row; the first reason for it is told."""
        self._refused.setdefault(row, (name, value, rule))

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        """Leave the other rows out, which are good but not asked for."""
        self._wanted = wanted

    def good(self) -> npt.NDArray[np.bool_]:
        """Where rows are neither refused nor left out."""
        good = np.ones(len(self), np.bool_) if self._wanted is None else self._wanted.copy()
        good[list(self._refused)] = False
        return good

    def numbers(self, column: str) -> npt.NDArray[np.int64]:
        """A column of the trace that was read, as numbers; 0 where there is none."""
        return numbers(self.columns[column]).astype(np.int64)

    def batch(self, where: str, log: ReadLog) -> pa.RecordBatch:
        """The good rows as columns of a trace. The others go to ``log``, in the order of the file."""
        places = self.piece.numbers
        told = [Broken(int(places[row]), *said) for row, said in self._refused.items()]
        for broken in sorted([*told, *self.piece.broken], key=lambda broken: broken.number):
            log.refuse(TraceError.at(where, broken.number, broken.field, broken.value, broken.rule))
        schema = make_schema(frozenset(self.columns)).append(pa.field(ROW_COLUMN, pa.uint64()))
        schema = pa.schema([pa.field(each.name, each.type) for each in schema])
        columns = {**self.columns, ROW_COLUMN: pa.array(places, pa.uint64())}
        batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        good = self.good()
        return batch if good.all() else batch.filter(pa.array(good))
