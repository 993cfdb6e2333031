"""Which requests go on with which, and whole conversations drawn from them.

Where a trace has sessions they are the conversations. Elsewhere a request goes on with its parent if it is longer and
has all full blocks of it, some of which were the parent's own, and no request before has gone on with it.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    import numpy.typing as npt

    from kvbench.results.like.fit import Fit

    Int64s = npt.NDArray[np.int64]

NONE = -1
NEAREST = 16
NEAR_SHARE = 0.02
"""A conversation begins up to so many others earlier or later than it did: this share of all, or NEAREST."""


def by_session(sessions: Int64s) -> Int64s:
    """For each row the one before of its session; NONE where there is none."""
    before = np.full(len(sessions), NONE, np.int64)
    order = np.argsort(sessions, kind="stable")
    same = (sessions[order[1:]] == sessions[order[:-1]]) & (sessions[order[1:]] != NONE)
    before[order[1:][same]] = order[:-1][same]
    return before


def by_growth(tokens: Int64s, shared: Int64s, lag: Int64s, block_tokens: int) -> Int64s:
    """For each row the one that it goes on with by its blocks; NONE where there is none."""
    rows = np.arange(len(tokens))
    before = np.full(len(tokens), NONE, np.int64)
    if not block_tokens:
        return before
    parent = rows - lag
    grows = (shared > shared[parent]) & (shared == tokens[parent] // block_tokens) & (tokens > tokens[parent])
    parents, first = np.unique(parent[grows], return_index=True)
    before[rows[grows][first]] = parents
    return before


class Conversations:
    """Draws ``count`` records: conversations whole, their requests as far apart as they were.

    A request whose turn has come goes first; where there is none, a conversation begins. All begin in about the order
    of the given trace, and again from its start where there are to be more, so that what changes in the course of it
    changes here and what came twice after long does so here. Fewer begin anywhere in it.
    """

    def __init__(self, fit: Fit, count: int, rng: random.Random) -> None:
        starts = np.flatnonzero(fit.before == NONE)
        self._starts = _again_and_again(starts, rng, anywhere=count < fit.rows)
        later = np.flatnonzero(fit.before != NONE)
        self._after = np.full(fit.rows, NONE, np.int64)
        self._after[fit.before[later]] = later
        self._due: list[tuple[int, int, int, dict[int, int]]] = []

    def next(self, at: int) -> tuple[int, dict[int, int]]:
        """The record of request ``at``, and of the conversation so far: record → request."""
        if self._due and self._due[0][0] <= at:
            _, _, record, made = heapq.heappop(self._due)
        else:
            record, made = next(self._starts), {}
        made[record] = at
        after = int(self._after[record])
        if after != NONE:
            heapq.heappush(self._due, (at + after - record, at, after, made))
        return record, made


def _again_and_again(starts: Int64s, rng: random.Random, anywhere: bool) -> Iterator[int]:
    """All ``starts`` in about their order, time after time, from the first one or ``anywhere``."""
    near = max(NEAREST, NEAR_SHARE * len(starts))
    first = int(rng.random() * len(starts)) if anywhere else 0
    while True:
        moved = np.arange(len(starts)) + [(2 * rng.random() - 1) * near for _ in range(len(starts))]
        yield from np.roll(starts[np.argsort(moved)], -first).tolist()
