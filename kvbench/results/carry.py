"""What was seen last of each of many things, over batches: arrays that are indexed by their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]


class Latest:
    """The latest value of each number; ``unknown`` before the first. Memory: 8 bytes a number."""

    def __init__(self, unknown: int) -> None:
        self._unknown = unknown
        self._values = np.full(0, unknown, np.int64)

    def before(self, ids: Int64s, values: Int64s) -> Int64s:
        """For each entry the value of the entry before it with the same id, in this batch or an earlier
        one; the batch's own values are remembered."""
        if len(ids) == 0:
            return np.zeros(0, np.int64)
        self._values = grown(self._values, int(ids.max()) + 1, self._unknown)
        order = np.argsort(ids, kind="stable")
        sorted_ids, sorted_values = ids[order], values[order]
        again = sorted_ids[1:] == sorted_ids[:-1]
        previous = self._values[sorted_ids]
        previous[1:][again] = sorted_values[:-1][again]
        last = np.append(~again, True)
        self._values[sorted_ids[last]] = sorted_values[last]
        found = np.empty_like(previous)
        found[order] = previous
        return found


def grown(array: npt.NDArray[Any], size: int, fill: int) -> npt.NDArray[Any]:
    """``array`` with room for ``size`` entries at least, the new ones filled with ``fill``."""
    have = len(array)
    if size <= have:
        return array
    room = max(size, have + have // 2) - have
    return np.concatenate([array, np.full(room, fill, array.dtype)])


class Names:
    """Numbers names 0, 1, 2, … in first-seen order; memory grows with their number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, column: Any) -> Int64s:
        """The number of each entry of a string column; -1 for null."""
        encoded = column.dictionary_encode()
        table = [self.numbers.setdefault(name, len(self.numbers)) for name in encoded.dictionary.to_pylist()]
        at = encoded.indices.fill_null(len(table)).to_numpy()
        found: Int64s = np.array([*table, -1], np.int64)[at]
        return found
