"""What formats with one row a line share: values checked one by one, and rows gathered into batches."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from kvbench.trace.formats import ROW_COLUMN, ReadLog
from kvbench.trace.recut import MAX_IDS
from kvbench.trace.schema import is_list, make_schema
from kvbench.units import MAX_NS, MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

Ids = np.ndarray[Any, np.dtype[np.uint64]]
T = TypeVar("T")

MAX_ID = 2**64 - 1
MAX_MADE_IDS = 2**17
"""Of one row whose ids the file only counts (1 MiB of them), so that a few bytes cannot ask for gigabytes."""
ROWS_PER_BATCH = 4096


class BadValue(Exception):
    """A value of a row breaks a rule: field, value, rule; what :meth:`TraceError.at` takes."""


def nanoseconds(name: str, value: float, unit_ns: int, *, any_sign: bool = False) -> int:
    """Whole nanoseconds from ``value`` units of ``unit_ns``; exact for integers, rounded for fractions."""
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(name, value, "must be a finite number")
    if value < 0 and not any_sign:
        raise BadValue(name, value, "must not be negative")
    # Compared before they are multiplied, for the product may be no number at all.
    if abs(value) > MAX_NS // unit_ns or abs(result := round(value * unit_ns)) > MAX_NS:
        raise BadValue(name, value, "is too large; times are counted in 64-bit nanoseconds")
    return result


def optional_ns(name: str, value: float | None, unit_ns: int, *, any_sign: bool = False) -> int | None:
    """As :func:`nanoseconds`, for a value that may be missing."""
    return None if value is None else nanoseconds(name, value, unit_ns, any_sign=any_sign)


def whole(name: str, value: int | None, high: int = MAX_TOKENS, low: int = 0) -> int:
    """``value``, which must be there and lie from ``low`` to ``high``."""
    if value is None:
        raise BadValue(name, None, "is missing")
    if not low <= value <= high:
        raise BadValue(name, value, f"must be from {low} to {high}")
    return value


def optional_whole(name: str, value: int | None, high: int = MAX_TOKENS, low: int = 0) -> int | None:
    """As :func:`whole`, for a value that may be missing."""
    return None if value is None else whole(name, value, high, low)


def id_array(name: str, ids: Sequence[int]) -> Ids:
    """``ids`` as unsigned 64-bit numbers."""
    try:
        return np.array(ids, np.uint64)
    except OverflowError:
        bad = next(value for value in ids if not 0 <= value <= MAX_ID)
        raise BadValue(name, bad, f"must be from 0 to {MAX_ID}") from None


def made_id_count(name: str, tokens: int, block_tokens: int) -> int:
    """Full blocks of ``tokens`` tokens, for a row that only counts them; at most :data:`MAX_MADE_IDS`."""
    count = tokens // block_tokens
    if count > MAX_MADE_IDS:
        rule = (
            f"makes {count:,} blocks of {block_tokens:,} tokens, and a row whose blocks are only counted "
            f"has {MAX_MADE_IDS:,} at most; use larger blocks or leave the row out"
        )
        raise BadValue(name, tokens, rule)
    return count


def decoded(decoder: msgspec.json.Decoder[T], line: bytes) -> T:
    """The JSON of ``line`` as the decoder's type. Raises BadValue with the value that is wrong."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        raise _explained(line, str(error)) from None
    except RecursionError:
        raise BadValue("line", _text(line), "is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if re.search(rb"\b(NaN|Infinity)\b", line):
            raise BadValue("line", _text(line), "NaN and Infinity are no numbers of a trace (nor of JSON)") from None
        raise BadValue("line", _text(line), f"is not valid JSON: {error}") from None


def _text(line: bytes) -> str:
    return line[:1000].decode("utf-8", "replace")


def _explained(line: bytes, said: str) -> BadValue:
    """What a line of valid JSON has wrong: the place as ``requests[3].in``, the value there, the rule."""
    rule, _, place = said.partition(" - at `$")
    rule = rule[0].lower() + rule[1:]
    steps = re.findall(r"\.([^.\[\]`]+)|\[(\d+)\]", place)
    try:
        value = msgspec.json.decode(line)
        for name, index in steps:
            value = value[name] if name else value[int(index)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        value = _text(line)
    if not place and not isinstance(value, dict | str):
        rule = "must be a JSON object"
    return BadValue(place.rstrip("`").removeprefix(".") or "line", value, rule)


def json_keys(head: bytes) -> frozenset[str]:
    """The keys of the JSON object that ``head`` starts with, as far as it goes; none if it starts with no object.

    Also for an object that is cut off.
    """
    if not head.lstrip().startswith(b"{"):
        return frozenset()
    keys = set()
    depth = 0
    text = head.decode("utf-8", "replace")
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[\[\]{}]', text):
        token = match.group()
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
            if depth == 0:
                break
        elif depth == 1 and match.group(2):
            keys.add(match.group(1))
    return frozenset(keys)


def say_once(log: ReadLog, note: str) -> None:
    """Add ``note`` to the notes of the import, if it is not there from another file."""
    if note not in log.notes:
        log.notes.append(note)


class BatchMaker:
    """Gathers rows into batches of some columns of the schema, and the number of each row in its file.

    A list column takes NumPy arrays and None, or in all rows an integer, the only entry of its list.
    A batch is full at so many rows or ids that memory for it stays small.
    """

    def __init__(self, *columns: str) -> None:
        self.schema = make_schema(set(columns)).append(pa.field(ROW_COLUMN, pa.uint64()))
        self._columns: dict[str, list[Any]] = {name: [] for name in self.schema.names}
        self._rows = 0
        self._ids = 0

    def add(self, number: int, **values: Any) -> None:
        """Add row ``number`` with a value for every column."""
        for name, value in values.items():
            self._columns[name].append(value)
        self._columns[ROW_COLUMN].append(number)
        self._rows += 1
        self._ids += sum(len(value) for value in values.values() if isinstance(value, np.ndarray))

    @property
    def is_full(self) -> bool:
        return self._rows >= ROWS_PER_BATCH or self._ids >= MAX_IDS

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are there, if any, and start anew."""
        if self._rows == 0:
            return
        arrays = [_array(self._columns[field.name], field.type) for field in self.schema]
        for values in self._columns.values():
            values.clear()
        self._rows = self._ids = 0
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if not is_list(kind):
        return pa.array(values, kind)
    if isinstance(values[0], int):
        ones = pa.array(np.arange(len(values) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(ones, pa.array(values, kind.value_type), type=kind)
    missing = np.array([value is None for value in values])
    parts: list[npt.NDArray[Any]] = [value for value in values if value is not None]
    joined = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(offsets, pa.array(joined, kind.value_type), type=kind, mask=mask)
