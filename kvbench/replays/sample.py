"""Which requests are in a sample: all of a prefix tree, or all of a session, or none.

A unit (tree or session) is in the sample if its hash lies below the rate, so the choice does not
depend on what else is in the trace, and no pass over it is needed first. Sampling blocks one by one
would break the leading runs that prefix hits are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from kvbench.errors import ConfigError
from kvbench.seeds import stream_seed
from kvbench.trace.rows import Interner
from kvbench.trace.sampling import mix64, session_hashes

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.replays.keyed import Keyed
    from kvbench.trace.reader import Trace

    UInt64s = npt.NDArray[np.uint64]

RULER = 5
"""Blocks of requests outside the sample are counted at so many times its rate."""
GROUPS = 20
"""Groups of units, each left out in turn for the error bars."""
FEW_UNITS = 30
"""With fewer units in the sample the error bars themselves are rough."""
HEAVY_SHARE = 0.1
"""A tree that starts more than this share of the requests makes sampling by tree a gamble."""


@dataclass(frozen=True, slots=True)
class SampleChoice:
    """``rate`` of the units (``tree`` or ``session``) are kept. The tree of a request is named by its
    block at ``depth``: 0 for the first block; all blocks before it, of any tree, are in the sample."""

    rate: float
    by: Literal["tree", "session"] = "tree"
    depth: int = 0

    @property
    def ruler(self) -> float:
        """Share of the other requests' blocks that are counted."""
        return min(1.0, RULER * self.rate)

    def check(self, trace: Trace) -> None:
        """Raise ConfigError for a sample that ``trace`` cannot give."""
        if not 0 < self.rate < 1:
            raise ConfigError(f"--sample = {self.rate:g} must be above 0 and below 1; leave it out for the whole trace")
        if self.depth < 0:
            raise ConfigError(f"--sample-depth = {self.depth} must not be negative")
        if self.by == "session" and self.depth:
            raise ConfigError("--sample-depth has no effect with --sample-by session")
        if self.by == "session" and "session_id" not in trace.schema.names:
            raise ConfigError(f"--sample-by session needs a column session_id, which {trace.name} has not")


class Sampler:
    """Chooses requests; and counts how many of them each tree of the whole trace starts."""

    def __init__(self, choice: SampleChoice, seed: int) -> None:
        self.choice = choice
        self.ruler_salt = stream_seed(seed, "curve/ruler")
        self._salt = np.uint64(stream_seed(seed, "curve/sample"))
        self._group_salt = np.uint64(stream_seed(seed, "curve/groups"))
        self._chosen = Interner()
        self._names = Interner()
        self._requests = np.zeros(0, np.int64)
        self._rows = 0

    @property
    def units(self) -> int:
        """Units in the sample so far."""
        return len(self._chosen)

    @property
    def all_units(self) -> int:
        """Units in the trace so far."""
        return len(self._names)

    @property
    def largest_share(self) -> float:
        """Share of the requests that the largest unit of the trace has."""
        total = int(self._requests.sum())
        return int(self._requests.max()) / total if total else 0.0

    def choose(self, item: Keyed) -> npt.NDArray[np.int32]:
        """The group of each request of a batch; -1 for those that are not in the sample."""
        names = self._session_names(item) if self.choice.by == "session" else self._tree_names(item)
        self._rows += len(names)
        numbers = np.empty_like(names)
        self._names.intern(names, numbers)
        counts = np.bincount(numbers.astype(np.int64), minlength=len(self._requests))
        counts[: len(self._requests)] += self._requests
        self._requests = counts
        hashes = mix64(names ^ self._salt)
        kept = hashes < np.uint64(int(self.choice.rate * 2**64))
        chosen = np.ascontiguousarray(names[kept])
        self._chosen.intern(chosen, np.empty_like(chosen))
        groups = np.full(len(names), -1, np.int32)
        groups[kept] = mix64(chosen ^ self._group_salt) % np.uint64(GROUPS)
        return groups

    def _tree_names(self, item: Keyed) -> UInt64s:
        """The key of the block that names the tree; a request without blocks is a tree of its own."""
        starts, ends = item.keys.offsets[:-1], item.keys.offsets[1:]
        rows = np.arange(self._rows, self._rows + len(starts), dtype=np.uint64)
        names = mix64(rows ^ mix64(np.array([self._salt]))[0])
        some = ends > starts
        names[some] = item.keys.keys[np.minimum(starts + self.choice.depth, ends - 1)[some]]
        return names

    def _session_names(self, item: Keyed) -> UInt64s:
        """A hash of the session's name; a request without one is a session of its own."""
        column = item.batch.column("session_id")
        rows = np.arange(self._rows, self._rows + len(column), dtype=np.uint64)
        return session_hashes(column, rows, self._salt)
