"""Any table: CSV, JSON lines or Parquet, with a map that says which of its columns is what.

``arrival=ts:ms,input=prompt_tokens`` reads arrivals from column ``ts``, in milliseconds, and lengths from
``prompt_tokens``. In JSON, dots lead to what lies deeper: ``input=usage.prompt_tokens``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import ConfigError
from kvbench.plugins import did_you_mean
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.derived import Spacing, Turns, fill_blocks
from kvbench.trace.formats.ids import IdLists
from kvbench.trace.formats.tablefiles import CsvTable, JsonTable, ParquetTable, require_columns
from kvbench.trace.formats.tabular import Rows
from kvbench.trace.formats.values import NS_DIGITS, PRIORITY, TIME_UNITS, TOKENS, TURN, as_text, time_reader
from kvbench.trace.schema import TraceFacts
from kvbench.trace.sources import PARQUET_MAGIC
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvbench.trace.formats.tabular import ArrowPiece, JsonPiece
    from kvbench.trace.formats.text import Lines
    from kvbench.trace.formats.values import Reader

OWNER = "trace format columns"
PLAIN: tuple[tuple[str, str, Reader], ...] = (
    ("output", "output_tokens", TOKENS),
    ("session", "session_id", as_text),
    ("turn", "turn", TURN),
    ("model", "model", as_text),
    ("adapter", "adapter", as_text),
    ("tenant", "tenant", as_text),
    ("priority", "priority", PRIORITY),
    ("type", "type", as_text),
    ("request", "request_id", as_text),
)
"""Parameter, column of the trace, and how it is read; none needs a unit."""

TIMES = ("arrival", "think", "end", "duration")
"""Parameters whose value is a column and a unit."""
COLUMN_PARAMS = (*TIMES, "input", "ids", "tokens", *(name for name, _, _ in PLAIN))
SEPARATORS = {"": "", "blank": "", "semicolon": ";", "pipe": "|", "tab": "\t", "comma": ",", "colon": ":"}
DELIMITERS = {"comma": ",", "semicolon": ";", "pipe": "|", "tab": "\t"}
WALL_CLOCK_NS = 10**17
"""A first arrival that lies farther off than this, three years, counts from 1970 and not from the trace's start."""


class ColumnsFormat(TraceFormat):
    """See the module.

    ``columns``      parameter (one of COLUMN_PARAMS) → name of the column, with ``:unit`` where it is a time.
    ``block_tokens`` 0: not known. The facts are those of :class:`TraceFacts`.
    ``separator``    between ids in one text. ``id_base`` as in :func:`kvbench.trace.formats.ids.id_of`.
    ``delimiter``    of a CSV file. Without ``header`` its columns are called 1, 2, 3, …
    ``origin``       what arrivals count from: ``first`` the earliest one; ``zero`` as they are; ``auto`` as they
                     are where they are small numbers, and from the earliest where they are dates.
    ``rate``, ``interval_s``  as in :class:`Spacing`, for tables without arrivals.
    """

    reads_tables = True

    def __init__(
        self,
        *,
        block_tokens: int = 0,
        tail_rule: str = "ceil",
        id_kind: str = "prefix",
        id_scope: str = "file",
        separator: str = "",
        id_base: str = "auto",
        delimiter: str = "comma",
        header: bool = True,
        origin: str = "auto",
        rate: float | None = None,
        interval_s: float | None = None,
        **columns: str,
    ) -> None:
        self._columns = {param: name for param, name in columns.items() if name}
        self._times = {param: _with_unit(param, columns[param]) for param in TIMES if columns.get(param)}
        self._names = self._columns | {param: name for param, (name, _) in self._times.items()}
        self._facts = TraceFacts(block_tokens or None, tail_rule, id_kind, id_scope, source_format="columns")
        self._readers = {param: time_reader(unit) for param, (_, unit) in self._times.items()}
        self._dated = "arrival" in self._times and self._times["arrival"][1] in ("iso", "epoch")
        self._ids = IdLists(SEPARATORS[separator], id_base)
        self._tokens = IdLists(SEPARATORS[separator], "decimal", pa.list_(pa.uint32()), MAX_TOKENS)
        self._csv = (DELIMITERS[delimiter], header)
        self._origin = origin
        self._spacing = Spacing(OWNER, rate, interval_s)
        self._turns = Turns()
        self._started = False

    def sniff(self, head: bytes, name: str) -> bool:
        """Never: without a map, no column says what it is."""
        return False

    def facts(self) -> TraceFacts:
        return self._facts

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        self._check()
        checked = False
        for piece in self._pieces(lines):
            if not checked and piece.names():
                require_columns(lines.name, piece.names(), self._names.values())
                checked = True
            rows = Rows(piece)
            self._read_times(rows, log)
            for param, column, reader in PLAIN:
                if param in self._names:
                    rows.read(column, self._names[param], reader)
            self._read_prompts(rows)
            self._read_pauses(rows)
            piece.count(log.ignored_fields, self._names.values())
            yield rows.batch(lines.name, log)
        if "arrival" not in self._names:
            self._spacing.note(lines.name, log)

    def _check(self) -> None:
        """Raises ConfigError for a map that cannot work."""
        names = self._names
        if not {"input", "ids", "tokens"} & names.keys():
            raise ConfigError(f"{OWNER}: say which column has the length of prompts, as in input=prompt_tokens")
        if {"ids", "tokens"} <= names.keys():
            raise ConfigError(f"{OWNER}: ids and tokens both identify the prompt; give one of them")
        if "ids" in names and "input" not in names and self._facts.block_tokens is None:
            raise ConfigError(f"{OWNER}: without input, lengths are counted from the ids, which needs block_tokens")
        if "arrival" in names and self._spacing.given:
            raise ConfigError(
                f"{OWNER}: rate and interval_s are for tables without arrivals; leave out arrival, or them"
            )
        if len({"think", "end", "duration"} & names.keys()) > 1:
            raise ConfigError(f"{OWNER}: think, end and duration all tell the pause before a turn; give one of them")
        if {"end", "duration"} & names.keys() and not {"session", "arrival"} <= names.keys():
            raise ConfigError(
                f"{OWNER}: end and duration need session and arrival, for they tell the pause between turns"
            )

    def _pieces(self, lines: Lines) -> Iterable[ArrowPiece] | Iterable[JsonPiece]:
        head = lines.head()
        if head.startswith(PARQUET_MAGIC):
            return ParquetTable(lines).pieces()
        if head.lstrip().startswith(b"{"):
            return JsonTable(lines).pieces()
        return CsvTable(lines, *self._csv).pieces()

    def _read_times(self, rows: Rows, log: ReadLog) -> None:
        if "arrival" not in self._names:
            rows.columns["arrival_ns"] = self._spacing.arrivals(len(rows))
        else:
            rows.read("arrival_ns", self._names["arrival"], self._readers["arrival"], required=True)
            if not self._started and len(rows):
                self._started = True
                least = pc.min(rows.columns["arrival_ns"]).as_py() or 0
                dated = self._dated or least > WALL_CLOCK_NS
                log.any_origin |= self._origin == "first" or (self._origin == "auto" and dated)
        if "think" in self._names:
            rows.read("think_time_ns", self._names["think"], self._readers["think"])

    def _read_prompts(self, rows: Rows) -> None:
        names = self._names
        if "input" in names:
            rows.read("input_tokens", names["input"], TOKENS, required=True)
        if "ids" in names:
            rows.take("block_ids", names["ids"], rows.piece.lists(names["ids"], self._ids), required=True)
            if "input" not in names:
                fill_blocks(rows, names["ids"], self._facts.block_tokens or 1)
        if "tokens" in names:
            rows.take("token_ids", names["tokens"], rows.piece.lists(names["tokens"], self._tokens), required=True)
            if "input" not in names:
                counts = pc.fill_null(pc.list_value_length(rows.columns["token_ids"]), 0)
                rows.columns["input_tokens"] = counts.cast(pa.uint32())

    def _read_pauses(self, rows: Rows) -> None:
        """Pauses between turns, from when or after how long a request ended."""
        given = next((param for param in ("end", "duration") if param in self._names), None)
        if given is None:
            return
        values = rows.values(self._names[given], self._readers[given])
        took = pc.subtract(values, rows.columns["arrival_ns"]) if given == "end" else values
        recorded = rows.columns.get("turn")
        self._turns.add(rows, self._names["session"], took.to_pylist())
        if recorded is not None:
            rows.columns["turn"] = recorded


def _with_unit(param: str, value: str) -> tuple[str, str]:
    """Column and unit of ``column:unit``. Raises ConfigError."""
    name, colon, unit = value.rpartition(":")
    units = ", ".join(TIME_UNITS)
    if not colon or not name:
        raise ConfigError(f"{OWNER}: {param} = {value!r} needs a unit, as in {param}={value}:ms (one of {units})")
    allowed = tuple(NS_DIGITS) if param in ("think", "duration") else TIME_UNITS
    if unit not in allowed:
        raise ConfigError(f"{OWNER}: {param} = {value!r}: {unit!r} is no unit; {did_you_mean(unit, allowed)}")
    return name, unit
