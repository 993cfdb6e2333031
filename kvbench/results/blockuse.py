"""How often each block of a trace is used, and whether its ids keep what they promise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.results.carry import grown
from kvbench.results.rates import ratio
from kvbench.trace.columns import numbers
from kvbench.trace.rows import Interner

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvbench.replays.engine import Served
    from kvbench.results.totals import Totals
    from kvbench.trace.schema import TraceFacts

    Int64s = npt.NDArray[np.int64]

UNKNOWN = -2
NO_PARENT = -1
NEVER = -1
TOP_SHARE = 0.9


class BlockUse:
    """Counts the uses of each key, and notes the first row where a key has another parent or
    another size than before."""

    def __init__(self, facts: TraceFacts, *, dense: bool) -> None:
        self._facts = facts
        self._interner = None if dense else Interner()
        self._uses = np.zeros(0, np.int64)
        self._firsts = np.zeros(0, np.int64)
        self._parent = np.zeros(0, np.int64)
        self._size = np.zeros(0, np.int64)
        self._first_ns = np.zeros(0, np.int64)
        self._last_ns = np.zeros(0, np.int64)
        self._two_parents = _Oddity()
        self._two_sizes = _Oddity()

    def add(self, served: Served, first_row: int) -> Int64s:
        """Take in one batch, whose first row is number ``first_row`` (from 0) of the trace; returns the number
        of each block of it."""
        keys, offsets = served.keys.keys, served.keys.offsets
        if len(keys) == 0:
            return np.zeros(0, np.int64)
        numbered = keys
        if self._interner is not None:
            numbered = np.empty_like(keys)
            self._interner.intern(keys, numbered)
        ids = numbered.astype(np.int64)
        self._grow(int(ids.max()) + 1)
        starts = offsets[:-1][np.diff(offsets) > 0]
        self._uses += np.bincount(ids, minlength=len(self._uses))
        self._firsts += np.bincount(ids[starts], minlength=len(self._firsts))
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) + first_row
        self._check_parents(ids, starts, rows)
        self._check_sizes(ids, offsets, numbers(served.batch.column("input_tokens")).astype(np.int64), rows)
        times = np.repeat(numbers(served.batch.column("arrival_ns")), np.diff(offsets))
        self._first(self._first_ns, self._last_ns[ids] == NEVER, ids, times)
        self._last_ns[ids] = times
        return ids

    def lifetimes(self) -> tuple[Int64s, Int64s]:
        """When each block was used first and last, in nanoseconds."""
        used = self._last_ns != NEVER
        return self._first_ns[used], self._last_ns[used]

    def summary(self, totals: Totals) -> dict[str, Any]:
        """Uses of blocks, one-use share, and sharing by first block."""
        asked = totals.counts["blocks"]
        distinct = int((self._uses > 0).sum())
        once = int((self._uses == 1).sum())
        starts = self._firsts[self._firsts > 0]
        return {
            "asked": asked,
            "distinct": distinct,
            "infinite_hit": totals.counts["infinite_hit_blocks"],
            "used_once": once,
            "used_once_share": ratio(once, distinct),
            "mean_uses": ratio(asked, distinct),
            "most_uses": int(self._uses.max()) if distinct else 0,
            "first_blocks": {
                "distinct": len(starts),
                "most_rows": int(starts.max()) if len(starts) else 0,
                "most_rows_share": ratio(int(starts.max()) if len(starts) else 0, int(starts.sum())),
                "for_90_percent": _covering(starts, TOP_SHARE),
            },
        }

    def remarks(self, number_of: Callable[[int], int]) -> list[str]:
        """Sentences on ids that do not keep what they promise; ``number_of`` a row (from 0) is what to call it."""
        return [
            *self._two_parents.remark(
                "ids with different predecessors in different rows",
                "they stand for content, not for a prefix",
                number_of,
            ),
            *self._two_sizes.remark(
                "ids seen at two sizes", "hits on them are cut to the request's own tokens", number_of
            ),
        ]

    def _grow(self, wanted: int) -> None:
        self._uses = grown(self._uses, wanted, 0)
        self._firsts = grown(self._firsts, wanted, 0)
        self._parent = grown(self._parent, wanted, UNKNOWN)
        self._size = grown(self._size, wanted, 0)
        self._first_ns = grown(self._first_ns, wanted, NEVER)
        self._last_ns = grown(self._last_ns, wanted, NEVER)

    @staticmethod
    def _first(known: Int64s, new: npt.NDArray[np.bool_], ids: Int64s, values: Int64s) -> None:
        """Set ``known`` for the ids that are new, each to its first value: NumPy keeps the last of
        several assignments to one place, so they are made backwards."""
        known[ids[new][::-1]] = values[new][::-1]

    def _check_parents(self, ids: Int64s, starts: Int64s, rows: Int64s) -> None:
        parents = np.empty_like(ids)
        parents[1:] = ids[:-1]
        parents[starts] = NO_PARENT
        self._first(self._parent, self._parent[ids] == UNKNOWN, ids, parents)
        self._two_parents.note(ids, rows, self._parent[ids] != parents)

    def _check_sizes(self, ids: Int64s, offsets: Int64s, input_tokens: Int64s, rows: Int64s) -> None:
        block = self._facts.block_tokens
        if block is None or self._facts.tail_rule != "ceil":
            return
        sizes = np.full(len(ids), block, np.int64)
        partial = (input_tokens % block > 0) & (np.diff(offsets) > 0)
        sizes[offsets[1:][partial] - 1] = input_tokens[partial] % block
        self._first(self._size, self._size[ids] == 0, ids, sizes)
        self._two_sizes.note(ids, rows, self._size[ids] != sizes)


def _covering(counts: Int64s, share: float) -> int:
    """How many of the largest ``counts`` sum up to ``share`` of all."""
    if len(counts) == 0:
        return 0
    return int(np.searchsorted(np.cumsum(np.sort(counts)[::-1]), share * int(counts.sum()))) + 1


class _Oddity:
    """How many different ids are odd in one way, and the first row (from 0) where one is."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._row: int | None = None

    def note(self, ids: Int64s, rows: Int64s, odd: npt.NDArray[np.bool_]) -> None:
        if odd.any():
            self._ids.update(np.unique(ids[odd]).tolist())
            if self._row is None:
                self._row = int(rows[odd][0])

    def remark(self, what: str, so: str, number_of: Callable[[int], int]) -> list[str]:
        if self._row is None:
            return []
        return [f"{what}: {len(self._ids):,} (row {number_of(self._row)} first); {so}"]
