"""Batches of a file as batches of the version 1 schema, by casts that lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.errors import TraceError
from kvbench.trace.columns import list_parts, numbers
from kvbench.trace.failures import Failure
from kvbench.trace.schema import is_list

if TYPE_CHECKING:
    from kvbench.trace.columns import Bools, Int64s, Numbers


def conform(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> tuple[pa.RecordBatch, list[Failure]]:
    """``batch`` with the columns and types of ``schema``, and the values that do not fit their type.

    A value that does not fit is 0 in the result; its row is in the failures.
    """
    if batch.schema.equals(schema):
        return batch.replace_schema_metadata(None), []
    failures: list[Failure] = []
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if not column.type.equals(field.type):
            column = _cast(column, field, failures, where)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema), failures


def _cast(column: pa.Array, field: pa.Field, failures: list[Failure], where: str) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        kind = field.type.value_type if is_list(field.type) else field.type
        if not pa.types.is_integer(kind):
            reason = str(error).splitlines()[0]
            raise TraceError(f"{where}: column {field.name} cannot be read as {field.type}: {reason}") from None
    if is_list(field.type):
        return _cast_list(column, field, failures)
    values, bad = _cast_integers(column, field.type)
    rows = np.flatnonzero(bad)
    failures.append(
        Failure(rows, field.name, lambda row: column[row].as_py(), lambda _: f"does not fit in {field.type}")
    )
    return values


def _cast_list(column: pa.Array, field: pa.Field, failures: list[Failure]) -> pa.Array:
    parts = list_parts(column)
    values, bad = _cast_integers(parts.values, field.type.value_type)
    at = np.flatnonzero(bad)
    rows_of_bad = np.searchsorted(parts.offsets, at, side="right") - 1
    rows, first = np.unique(rows_of_bad, return_index=True)
    offenders = dict(zip(rows.tolist(), at[first].tolist(), strict=True))
    failures.append(
        Failure(
            rows,
            field.name,
            lambda row: parts.values[offenders[row]].as_py(),
            lambda row: f"entry {offenders[row] - parts.offsets[row] + 1} does not fit in {field.type.value_type}",
        )
    )
    return rebuilt_list(column, parts.offsets, values, field.type)


def rebuilt_list(column: pa.Array, offsets: Int64s, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """A list array of ``kind`` from parts, null where ``column`` is null."""
    mask = column.is_null() if column.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind, mask=mask)


def _cast_integers(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Bools]:
    """``column`` as ``kind``, and where it does not fit (0 there; nulls fit)."""
    values = numbers(column)
    bad = _outside(values, *_limits(kind))
    return pc.if_else(pa.array(bad), pa.scalar(0, column.type), column).cast(kind), bad


def _limits(kind: pa.DataType) -> tuple[int, int]:
    """The smallest and the largest value of an Arrow integer type."""
    if pa.types.is_signed_integer(kind):
        return -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1
    return 0, (1 << kind.bit_width) - 1


def _outside(values: Numbers, low: int, high: int) -> Bools:
    """Where values lie below ``low`` or above ``high``, whatever their integer type."""
    own = np.iinfo(values.dtype)
    bad = np.zeros(len(values), np.bool_)
    if own.min < low:
        bad |= values < low
    if own.max > high:
        bad |= values > high
    return cast("Bools", bad)
