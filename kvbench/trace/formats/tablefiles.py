"""Tables in files: CSV, JSON lines, Parquet; as pieces of rows."""

from __future__ import annotations

import codecs
import csv
import io
import re
import shutil
import tempfile
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from kvbench.errors import TraceError
from kvbench.plugins import did_you_mean
from kvbench.trace.formats.tabular import NO_TEXT, ArrowPiece, Broken, JsonPiece
from kvbench.trace.formats.text import UTF8_MARK
from kvbench.trace.sources import PARQUET_ROWS, reading

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from kvbench.trace.formats.text import Lines

MAX_HEADER_BYTES = 1 << 16
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""What a decoder makes of bytes that are not UTF-8."""
BLOCK_BYTES = 8 << 20
"""Of a CSV file that are taken apart at once, and so the most that a row may have."""
JSON_ROWS = 4096


def header_of(head: bytes, delimiter: str = ",") -> tuple[str, ...]:
    """The column names in the first line of a CSV file that is not blank; none where there is no such line."""
    line = next((line for line in head.split(b"\n") if line.strip()), b"")
    try:
        names = next(csv.reader([line.decode()], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        return ()
    return tuple(name.strip() for name in names)


class CsvTable:
    """A CSV file. ``names`` are its columns, from its first line, or 1, 2, 3, … where it has no ``header``.

    Raises TraceError for a file whose first line cannot be one of CSV.
    """

    def __init__(self, lines: Lines, delimiter: str = ",", header: bool = True) -> None:
        self._name = lines.name
        self._lines = lines
        self._delimiter = delimiter
        self._header = header
        head = lines.head(MAX_HEADER_BYTES)
        if not head.strip():
            raise TraceError(f"{self._name}: has no rows")
        if head.lstrip().startswith((b"{", b"[{")):
            raise TraceError(f"{self._name}: is not CSV but JSON")
        if len(head) == MAX_HEADER_BYTES and b"\n" not in head.lstrip():
            raise TraceError(f"{self._name}: its first line has more than {MAX_HEADER_BYTES:,} bytes")
        names = header_of(head, delimiter)
        if not names:
            raise TraceError(f"{self._name}: its first line is not a line of CSV")
        self.names = self._checked(names) if header else tuple(str(number + 1) for number in range(len(names)))

    def _checked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if names.count(name) > 1:
                raise TraceError.at(self._name, None, "column", name, "stands twice in the first line")
        return names

    def pieces(self) -> Iterator[ArrowPiece]:
        """The rows, blank ones left out."""
        with self._lines.open() as text:
            line, before = text.readline(MAX_HEADER_BYTES).removeprefix(UTF8_MARK), 0
            while line and not line.strip():
                line, before = text.readline(MAX_HEADER_BYTES), before + 1
            if self._header:
                line, before = text.read(1), before + 1
            if line:
                yield from self._rows(io.BufferedReader(_Valid(line, text), BLOCK_BYTES), before)

    def _rows(self, text: IO[bytes], before: int) -> Iterator[ArrowPiece]:
        broken: list[Any] = []

        def keep_out(row: Any) -> str:
            broken.append(row)
            return "skip"

        with _parsing(self._name):
            reader = pa_csv.open_csv(
                text,
                read_options=pa_csv.ReadOptions(
                    use_threads=False, block_size=BLOCK_BYTES, column_names=list(self.names)
                ),
                parse_options=pa_csv.ParseOptions(
                    delimiter=self._delimiter, ignore_empty_lines=False, invalid_row_handler=keep_out
                ),
                convert_options=pa_csv.ConvertOptions(
                    check_utf8=False,
                    column_types=dict.fromkeys(self.names, pa.string()),
                    strings_can_be_null=True,
                    null_values=[""],
                ),
            )
        numbers = _Numbers(before)
        while True:
            with _parsing(self._name):
                batch = next(reader, None)
            if batch is None:
                break
            mine = numbers.of(batch.num_rows, [before + row.number for row in broken])
            # Rows are kept out before the batch is complete, and so are some of the batch after it.
            last = int(mine[-1]) if len(mine) else 0
            told = self._told((row for row in broken if before + row.number < last), before)
            broken[:] = [row for row in broken if before + row.number > last]
            there = _there(batch)
            yield ArrowPiece(mine[there], batch.filter(pa.array(there)), told)
        yield ArrowPiece(np.zeros(0, np.uint64), _empty(self.names), self._told(broken, before))

    def _told(self, broken: Iterable[Any], before: int) -> list[Broken]:
        columns = len(self.names)
        return [
            Broken(
                before + row.number,
                "row",
                row.text,
                f"has {row.actual_columns:,} values, and the first line has {columns:,}",
            )
            for row in broken
            if row.text.strip()
        ]


def _there(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Where rows are not blank."""
    there = np.zeros(batch.num_rows, np.bool_)
    for column in batch.columns:
        if column.null_count == 0:
            return np.ones(batch.num_rows, np.bool_)
        there |= column.is_valid().to_numpy(zero_copy_only=False)
    return there


def _empty(names: Sequence[str]) -> pa.RecordBatch:
    schema = pa.schema([pa.field(name, pa.string()) for name in names])
    return pa.RecordBatch.from_arrays([pa.array([], pa.string()) for _ in names], schema=schema)


class _Numbers:
    """Numbers rows as they stand in the file, among those that were kept out."""

    def __init__(self, before: int) -> None:
        self._next = before + 1

    def of(self, rows: int, kept_out: Sequence[int]) -> npt.NDArray[np.uint64]:
        """The numbers of the next ``rows`` rows; ``kept_out`` (ascending) are none of them."""
        every = np.arange(self._next, self._next + rows + len(kept_out), dtype=np.uint64)
        mine = every if not kept_out else np.setdiff1d(every, np.asarray(kept_out, np.uint64))[:rows]
        if rows:
            self._next = int(mine[-1]) + 1
        return mine


class _Valid(io.RawIOBase):
    """A file with its first bytes put back, and each byte that is not UTF-8 replaced by :data:`NO_TEXT`."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._ready = memoryview(b"")
        self._first = first
        self._rest = rest
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data, self._first = self._first or self._rest.read(len(buffer)), b""
            text = self._decoder.decode(data, final=not data)
            self._ready = memoryview((text if text.isascii() else _NOT_UTF8.sub(NO_TEXT, text)).encode())
            if not data and not self._ready:
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


@contextmanager
def _parsing(name: str) -> Iterator[None]:
    """Turns what Arrow raises about a CSV file into a TraceError."""
    try:
        yield
    except pa.ArrowException as error:
        said = (str(error).splitlines() or ["it is damaged"])[0]
        if "straddl" in said:
            said = f"a row has more than {BLOCK_BYTES >> 20} MiB; is a quote missing?"
        raise TraceError(f"{name}: cannot be read as CSV: {said}") from None


class JsonTable:
    """JSON lines, an object a line; ``rows`` of them make a piece."""

    def __init__(self, lines: Lines, rows: int = JSON_ROWS) -> None:
        self._lines = lines
        self._rows = rows

    def pieces(self) -> Iterator[JsonPiece]:
        """The rows. Fractions stay as they are written, as text."""
        decoder = msgspec.json.Decoder(float_hook=str)
        numbers: list[int] = []
        rows: list[dict[str, Any]] = []
        broken: list[Broken] = []
        for number, line in self._lines:
            row = json_object(decoder, number, line)
            if isinstance(row, Broken):
                broken.append(row)
            else:
                rows.append(row)
                numbers.append(number)
            if len(rows) + len(broken) == self._rows:
                yield JsonPiece(np.array(numbers, np.uint64), rows, broken)
                numbers, rows, broken = [], [], []
        if rows or broken:
            yield JsonPiece(np.array(numbers, np.uint64), rows, broken)


def json_object(decoder: msgspec.json.Decoder[Any], number: int, line: bytes) -> dict[str, Any] | Broken:
    """The object on line ``number``, or why there is none."""
    text = line.decode("utf-8", "replace")
    try:
        row = decoder.decode(line)
    except RecursionError:
        return Broken(number, "line", text, "is nested too deeply")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if re.search(r"\b(NaN|Infinity)\b", text):
            return Broken(number, "line", text, "NaN and Infinity are no numbers of a trace (nor of JSON)")
        return Broken(number, "line", text, f"is not valid JSON: {error}")
    if not isinstance(row, dict):
        return Broken(number, "line", row, "must be a JSON object, one request")
    return row


def first_object(head: bytes) -> dict[str, Any] | None:
    """The JSON object on the first line that is not blank, or None."""
    line = next((line for line in head.splitlines() if line.strip()), b"")
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return row if isinstance(row, dict) else None


def require_columns(where: str, have: Collection[str], need: Iterable[str]) -> None:
    """Raises TraceError, with the nearest name, where one of the columns ``need`` is not there."""
    for name in need:
        if name not in have:
            raise TraceError(f"{where}: there is no column {name!r}; {did_you_mean(name, sorted(have))}")


class ParquetTable:
    """A Parquet file."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def pieces(self) -> Iterator[ArrowPiece]:
        """The rows. The file is copied to a temporary one first, for it has to be read from its end."""
        name = self._lines.name
        with tempfile.TemporaryFile() as copy:
            with self._lines.open() as text:
                shutil.copyfileobj(text, copy)
            with reading(name):
                batches = pq.ParquetFile(copy, pre_buffer=False).iter_batches(batch_size=PARQUET_ROWS)
            number = 1
            while True:
                with reading(name):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield ArrowPiece(np.arange(number, number + batch.num_rows, dtype=np.uint64), batch)
                number += batch.num_rows
