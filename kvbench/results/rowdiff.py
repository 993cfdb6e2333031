"""Which requests of two runs of one trace differ, and in what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """How the requests of a run differ from those of the reference.

    ``requests``  that both have, by place; ``left_over`` that one of them has more.
    ``differing`` of them, those that differ in any column of both.
    ``first``     number of the first of these, and ``values`` what both have of it where they differ.
    ``columns``   number of differing requests by column, for columns with any.
    """

    requests: int
    left_over: int
    differing: int
    first: int | None
    values: dict[str, tuple[Any, Any]]
    columns: dict[str, int]

    @property
    def is_equal(self) -> bool:
        """Whether there is no difference."""
        return not self.differing and not self.left_over


def row_differences(reference: Path, run: Path) -> RowDifferences:
    """Compare two ``requests`` files of one trace, request by request, column by column; columns that one of them
    lacks, as it has other tiers, are left out."""
    shared = [name for name in pq.read_schema(reference).names if name in set(pq.read_schema(run).names)]
    with pq.ParquetFile(reference) as one, pq.ParquetFile(run) as other:
        count, longer = sorted((one.metadata.num_rows, other.metadata.num_rows))
        unequal = np.zeros(count, dtype=bool)
        columns: dict[str, int] = {}
        for name in shared:
            # A column at a time, so that memory holds two of them and not two tables.
            differs = _differs(_column(one, name, count), _column(other, name, count))
            if differs.any():
                columns[name] = int(differs.sum())
                unequal |= differs
        first = int(unequal.argmax()) if columns else None
        values = {} if first is None else _values(one, other, columns, first)
    return RowDifferences(count, longer - count, int(unequal.sum()), first, values, columns)


def _column(file: pq.ParquetFile, name: str, count: int) -> pa.ChunkedArray:
    return file.read([name]).column(0).slice(0, count)


def _differs(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Bools:
    """Where two columns differ; two nulls are equal."""
    different = pc.fill_null(pc.not_equal(one, other), False)
    return np.asarray(pc.or_(different, pc.not_equal(one.is_null(), other.is_null())))


def _values(
    one: pq.ParquetFile, other: pq.ParquetFile, columns: dict[str, int], row: int
) -> dict[str, tuple[Any, Any]]:
    pairs = {name: tuple(_column(file, name, row + 1)[row].as_py() for file in (one, other)) for name in columns}
    return {name: (mine, theirs) for name, (mine, theirs) in pairs.items() if mine != theirs}
