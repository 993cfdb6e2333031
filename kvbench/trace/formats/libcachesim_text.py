"""libCacheSim's text traces: CSV with stated columns, and one object id a line.

An object becomes a request of one block; see :class:`Objects` for what becomes of sizes.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

from kvbench.errors import ConfigError, TraceError
from kvbench.trace.formats import ReadLog, TraceFormat
from kvbench.trace.formats.fields import MAX_ID, BadValue, BatchMaker, nanoseconds, say_once
from kvbench.trace.formats.objects import Objects
from kvbench.trace.schema import TraceFacts
from kvbench.units import DURATION_UNITS, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kvbench.trace.formats.text import Lines

SAMPLE_HEADER = b"version,time,op,size,lbn"
"""Of the sample that libCacheSim ships. Other files are not guessed, for their columns must be said."""
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "space": " ", "bar": "|"}
NO_TIMES = "there are no times: all accesses come at 0, in the order of the file"
WHOLE_NUMBER = re.compile(r"[0-9]{1,20}")


class LibCacheSimTextFormat(TraceFormat):
    """One object id a line: all objects are of size 1, and there are no times.

    ``ids``: ``number``, or ``text``, which are numbered in the order in which they come.
    """

    def __init__(self, ids: str = "number") -> None:
        self._ids = _ObjectIds(ids == "text")

    def sniff(self, head: bytes, name: str) -> bool:
        whole_lines = head.splitlines()[: -1 if len(head) > 1 and not head.endswith(b"\n") else None] or [head.strip()]
        return all(line.strip().isdigit() and len(line) <= 21 for line in whole_lines)

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=1, source_format="libcachesim-txt")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        say_once(log, NO_TIMES)
        batch = BatchMaker("arrival_ns", "input_tokens", "block_ids")
        for number, line in lines:
            try:
                batch.add(number, arrival_ns=0, input_tokens=1, block_ids=self._ids.of("id", _text(line)))
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
            if batch.is_full:
                yield from batch.flush()
        yield from batch.flush()


class LibCacheSimCsvFormat(TraceFormat):
    """A table with a row an access.

    ``time_col``, ``id_col``, ``size_col``  numbers of the columns, from 1; 0: there is none, and time is 0
                 or size is 1.
    ``time_unit``  of the time column.
    ``delimiter``  between columns, by name. ``header``: whether the first line has names.
    ``ids``, ``sizes``  as in the other libCacheSim formats.
    """

    def __init__(
        self,
        time_col: int = 2,
        id_col: int = 5,
        size_col: int = 4,
        time_unit: str = "s",
        delimiter: str = "comma",
        header: bool = True,
        ids: str = "number",
        sizes: str = "bytes",
    ) -> None:
        if id_col in (time_col, size_col) or (time_col == size_col and time_col):
            columns = f"time_col={time_col}, id_col={id_col}, size_col={size_col}"
            raise ConfigError(f"libcachesim-csv: {columns} name one column twice; say with 0 that there is none")
        self._time_col, self._id_col, self._size_col = time_col, id_col, size_col
        self._unit_ns = DURATION_UNITS[time_unit]
        self._delimiter = DELIMITERS[delimiter]
        self._header = header
        self._ids = _ObjectIds(ids == "text")
        self._objects = Objects(sizes == "bytes")

    def sniff(self, head: bytes, name: str) -> bool:
        return head.split(b"\n", 1)[0].strip() == SAMPLE_HEADER

    def facts(self) -> TraceFacts:
        return TraceFacts(block_tokens=self._objects.block_tokens, source_format="libcachesim-csv")

    def read(self, lines: Lines, log: ReadLog) -> Iterator[pa.RecordBatch]:
        if not self._time_col:
            say_once(log, NO_TIMES)
        if self._size_col:
            self._objects.describe(log)
        batch = BatchMaker("arrival_ns", "input_tokens", "block_ids")
        header = self._header
        for number, line in lines:
            if header:
                header = False
                continue
            try:
                self._add(batch, number, self._cells(line))
            except BadValue as bad:
                log.refuse(TraceError.at(lines.name, number, *bad.args))
            if batch.is_full:
                yield from batch.flush()
        yield from batch.flush()

    def _cells(self, line: bytes) -> list[str]:
        text = _text(line)
        try:
            return next(csv.reader([text], delimiter=self._delimiter, strict=True))
        except (csv.Error, StopIteration) as error:
            raise BadValue("line", text, f"is no line of a CSV file: {error}") from None

    def _add(self, batch: BatchMaker, number: int, cells: list[str]) -> None:
        size = _number("size", _cell(cells, self._size_col, "size"), MAX_TOKENS) if self._size_col else 1
        if size == 0:
            raise BadValue("size", size, "must be 1 at least")
        time = _cell(cells, self._time_col, "time") if self._time_col else "0"
        batch.add(
            number,
            arrival_ns=nanoseconds("time", _time(time), self._unit_ns),
            block_ids=self._ids.of("id", _cell(cells, self._id_col, "id")),
            input_tokens=self._objects.token_count(size),
        )


class _ObjectIds:
    """Ids of objects as numbers; ids that are text get numbers in the order in which they come."""

    def __init__(self, as_text: bool) -> None:
        self._numbers: dict[str, int] | None = {} if as_text else None

    def of(self, name: str, text: str) -> int:
        """The id that ``text`` stands for."""
        if self._numbers is not None:
            return self._numbers.setdefault(text, len(self._numbers))
        if not WHOLE_NUMBER.fullmatch(text):
            raise BadValue(name, text, "is no whole number; ids=text takes ids that are text")
        return _number(name, text, MAX_ID)


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise BadValue("line", line[:1000].decode("utf-8", "replace"), "is not UTF-8") from None


def _cell(cells: list[str], column: int, what: str) -> str:
    if column > len(cells):
        raise BadValue(what, None, f"should stand in column {column}, and the line has {len(cells)}")
    return cells[column - 1].strip()


def _number(name: str, text: str, high: int) -> int:
    if not WHOLE_NUMBER.fullmatch(text) or int(text) > high:
        raise BadValue(name, text, f"must be a whole number from 0 to {high}")
    return int(text)


def _time(text: str) -> float:
    if WHOLE_NUMBER.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        raise BadValue("time", text, "is no number") from None
