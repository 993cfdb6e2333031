"""Block ids made from how a session's prompts continue one another, for traces that only count tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvbench.trace.formats.fields import made_id_count

if TYPE_CHECKING:
    from kvbench.trace.formats.fields import Ids


class IdSource:
    """Ids that nothing had before, 0, 1, 2, …"""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> tuple[int, int]:
        """A run of ``count`` new ids: first id, and count."""
        first = self._next
        self._next += count
        return first, count


class Context:
    """The tokens of a session so far, as ids of full blocks of ``block_tokens`` tokens.

    A block keeps its id as long as all its tokens are kept; where the context is cut, or was not
    full, other tokens follow, and the block is a new one. Memory is a few numbers a round, for ids
    are kept as runs.
    """

    def __init__(self, ids: IdSource, block_tokens: int) -> None:
        self._ids = ids
        self._block_tokens = block_tokens
        self._runs: list[tuple[int, int]] = []
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
        runs = _leading(self._runs, kept)
        runs += [run for run in (self._ids.take(prompt - kept), self._ids.take(total - prompt)) if run[1]]
        self._runs, self._tokens = runs, prefix_tokens + new_tokens + output_tokens
        ids = _expanded(runs, total)
        return ids[:prompt], ids[prompt:]


def _leading(runs: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """The runs of the first ``count`` ids."""
    kept = []
    for first, length in runs:
        if count <= 0:
            break
        kept.append((first, min(length, count)))
        count -= length
    return kept


def _expanded(runs: list[tuple[int, int]], total: int) -> Ids:
    ids = np.empty(total, np.uint64)
    at = 0
    for first, length in runs:
        ids[at : at + length] = np.arange(first, first + length, dtype=np.uint64)
        at += length
    return ids
