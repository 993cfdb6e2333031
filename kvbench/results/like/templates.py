"""The popular prefixes of a trace: system prompts, documents, whatever many requests begin with.

A *template* is a prefix of full blocks that so many requests have that it is no one's own. Each request has
one at most: the longest that it begins with. Templates lie within each other as prefixes do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.results.carry import grown

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

NONE = -1
FEWEST = 20
POPULAR = 0.01
"""A template has at least this share of the requests, and FEWEST of them."""


@dataclass(frozen=True, slots=True)
class Templates:
    """``of_row`` numbers each request's template (NONE without one), ``depth`` has the blocks of each, ``parent`` the
    next shorter one within it, and ``within[a, b]`` says whether b is a or begins with a. The last row and column
    of ``within`` stand for NONE: what shares with a request that has no template has none either."""

    of_row: Int64s
    depth: Int64s
    parent: Int64s
    within: Bools


class Uses:
    """Counts the requests that have each block."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)

    def add(self, ids: Int64s) -> None:
        if len(ids):
            self.counts = grown(self.counts, int(ids.max()) + 1, 0)
            self.counts += np.bincount(ids, minlength=len(self.counts))


class TemplateFinder:
    """A second pass: finds each request's template, once it is known which blocks are popular."""

    def __init__(self, uses: Uses, rows: int) -> None:
        self._popular = uses.counts >= max(FEWEST, POPULAR * rows)
        self._numbers: dict[int, int] = {}
        self._paths: list[list[int]] = []
        self._of_row: list[Int64s] = []

    def add(self, ids: Int64s, offsets: Int64s, full: Int64s) -> None:
        """Take in a batch; ``full`` has the full blocks of each row."""
        popular = self._popular[ids]
        unpopular = np.append(np.flatnonzero(~popular), len(ids))
        starts = offsets[:-1]
        depth = np.minimum(unpopular[np.searchsorted(unpopular, starts)], offsets[1:]) - starts
        depth = np.minimum(depth, full)
        found = np.full(len(starts), NONE, np.int64)
        some = np.flatnonzero(depth > 0)
        nodes = ids[starts[some] + depth[some] - 1]
        for node, row in zip(*np.unique(nodes, return_index=True), strict=True):
            if int(node) not in self._numbers:
                self._numbers[int(node)] = len(self._paths)
                start = int(starts[some[row]])
                self._paths.append(ids[start : start + int(depth[some[row]])].tolist())
        found[some] = [self._numbers[node] for node in nodes.tolist()]
        self._of_row.append(found)

    def templates(self) -> Templates:
        """What was found in all batches."""
        count = len(self._paths)
        parent = np.full(count, NONE, np.int64)
        within = np.zeros((count + 1, count + 1), np.bool_)
        within[NONE, NONE] = True
        for at, path in enumerate(self._paths):
            chain = [self._numbers[node] for node in path if node in self._numbers]
            within[chain, at] = True
            if len(chain) > 1:
                parent[at] = chain[-2]
        of_row = np.concatenate(self._of_row) if self._of_row else np.zeros(0, np.int64)
        return Templates(of_row, np.array([len(path) for path in self._paths], np.int64), parent, within)
