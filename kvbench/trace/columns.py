"""NumPy views of Arrow columns, without copying where there are no nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]
    Numbers = npt.NDArray[Any]


class ListParts(NamedTuple):
    """A list column taken apart: row r is ``values[offsets[r]:offsets[r + 1]]``, null rows are empty.

    ``offsets`` start at 0 and end at ``len(values)``; ``values`` is an Arrow array.
    """

    offsets: Int64s
    values: pa.Array

    @property
    def lengths(self) -> Int64s:
        return np.diff(self.offsets)


def numbers(column: pa.Array) -> Numbers:
    """An integer column as NumPy, nulls as 0."""
    return np.where(validity(column), _view(column), 0) if column.null_count else _view(column)


def validity(column: pa.Array) -> Bools:
    """True where a column is not null."""
    return _view(column.is_valid().cast(pa.uint8())).view(np.bool_)


def flags(rows: Bools) -> pa.Array:
    """A column of booleans, made without ``pa.array``, which would import pandas, too."""
    data = pa.py_buffer(np.ascontiguousarray(rows).view(np.uint8))
    return pa.Array.from_buffers(pa.uint8(), len(rows), [None, data]).cast(pa.bool_())


def list_parts(column: pa.Array) -> ListParts:
    """The offsets and values of a list (or large list) column."""
    if len(column) == 0:
        return ListParts(np.zeros(1, np.int64), column.values.slice(0, 0))
    if column.null_count:
        lengths = numbers(pc.list_value_length(column))
        return ListParts(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), column.flatten())
    offsets = _view(column.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return ListParts(offsets - first, column.values.slice(first, last - first))


def _view(column: pa.Array) -> Numbers:
    """A column of numbers as NumPy, with anything for a null. ``to_numpy`` would import pandas where that is installed,
    which takes as long as a replay of ten thousand requests."""
    kind = np.dtype(column.type.to_pandas_dtype())
    data = column.buffers()[1]
    if len(column) == 0 or data is None:
        return np.zeros(len(column), kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


def text_parts(column: pa.Array) -> tuple[Int64s, memoryview]:
    """The byte length of each string of a string column (null: 0), and all their bytes."""
    if column.null_count:
        column = pc.fill_null(column, "")
    if len(column) == 0:
        return np.zeros(0, np.int64), memoryview(b"")
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    text = memoryview(data if data is not None else b"")
    return np.diff(offsets), text[int(offsets[0]) : int(offsets[-1])]
