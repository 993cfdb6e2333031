"""Block ids that are made, for traces that only count tokens: runs of numbers until they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.trace.formats.fields import made_id_count
from kvbench.trace.recut import MAX_IDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvbench.trace.formats.fields import Ids

Run = tuple[int, int]
"""Ids that follow one another: the first, and how many."""


class IdSource:
    """Ids that nothing had before, 0, 1, 2, …"""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> Run:
        """A run of ``count`` new ids."""
        first = self._next
        self._next += count
        return first, count


class NamedIds:
    """Ids of what has a name: the same for the same place in it, from ``ids`` where they were not asked for yet."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self._known: dict[str, list[Run]] = {}

    def first(self, count: int, name: str) -> list[Run]:
        """The first ``count`` ids of ``name``."""
        known = self._known.setdefault(name, [])
        have = sum(length for _, length in known)
        if have < count:
            known.append(self._ids.take(count - have))
        return leading(known, count)


class Context:
    """The tokens of a session so far, as ids of full blocks of ``block_tokens`` tokens.

    A block keeps its id as long as all its tokens are kept; where the context is cut, or was not
    full, other tokens follow, and the block is a new one. Memory is a few numbers a round, for ids
    are kept as runs.
    """

    def __init__(self, ids: IdSource, block_tokens: int) -> None:
        self._ids = ids
        self._block_tokens = block_tokens
        self._runs: list[Run] = []
        self._tokens = 0

    def extended(self, prefix_tokens: int, new_tokens: int, output_tokens: int) -> tuple[Ids, Ids]:
        """Keep ``prefix_tokens`` of the context, add a prompt's new tokens and its answer.

        Returns the ids of the prompt's full blocks, and of those that are full after the answer.
        A prefix longer than the context holds tokens from before the trace; they are new here.
        Raises BadValue for too many blocks.
        """
        prompt = made_id_count("input_len", prefix_tokens + new_tokens, self._block_tokens)
        total = made_id_count("output_len", prefix_tokens + new_tokens + output_tokens, self._block_tokens)
        kept = min(prefix_tokens, self._tokens) // self._block_tokens
        runs = leading(self._runs, kept)
        runs += [run for run in (self._ids.take(prompt - kept), self._ids.take(total - prompt)) if run[1]]
        self._runs, self._tokens = runs, prefix_tokens + new_tokens + output_tokens
        ids = expanded(runs)
        return ids[:prompt], ids[prompt:]


def leading(runs: Sequence[Run], count: int) -> list[Run]:
    """The runs of the first ``count`` ids."""
    kept = []
    for first, length in runs:
        if count <= 0:
            break
        kept.append((first, min(length, count)))
        count -= length
    return kept


def expanded(runs: Sequence[Run]) -> Ids:
    """The ids of all runs."""
    parts = [np.arange(first, first + length, dtype=np.uint64) for first, length in runs]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def with_ids(batch: pa.RecordBatch, runs: Sequence[Sequence[Run]]) -> Iterator[pa.RecordBatch]:
    """``batch`` with the block ids of each row, in pieces of at most :data:`MAX_IDS` of them, or of one row.

    A few letters can ask for many ids, so they are not made all at once.
    """
    counts = np.array([sum(length for _, length in of_row) for of_row in runs], np.int64)
    start = 0
    while start < batch.num_rows:
        within = int(np.searchsorted(np.cumsum(counts[start:]), MAX_IDS, side="right"))
        stop = start + max(1, within)
        offsets = np.concatenate([[0], np.cumsum(counts[start:stop])]).astype(np.int32)
        ids = pa.array(expanded([run for of_row in runs[start:stop] for run in of_row]))
        column = pa.ListArray.from_arrays(pa.array(offsets), ids)
        yield batch.slice(start, stop - start).append_column("block_ids", column)
        start = stop
