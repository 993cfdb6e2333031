"""Drives the one pass of a curve over a trace, whole or sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.replays.distances import FIGURES, ExactSums, GroupSums
from kvbench.replays.engine import keyed_trace
from kvbench.replays.onepass import OnePass
from kvbench.replays.sample import GROUPS, Sampler
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kvbench.replays.keyed import Keyed
    from kvbench.replays.plan import Plan
    from kvbench.replays.sample import SampleChoice
    from kvbench.trace.reader import Trace

    Int64s = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

GRID = np.unique(np.geomspace(1, 2**31 - 2, 187).round().astype(np.int64))
"""Capacities at which error bars are found: twenty a decade."""


@dataclass(slots=True)
class Asked:
    """What the requests asked for: the denominators of rates."""

    requests: int = 0
    requests_with_blocks: int = 0
    blocks: int = 0
    cacheable_blocks: int = 0
    full_blocks: int = 0
    input_tokens: int = 0

    def add(
        self, item: Keyed, input_tokens: Int64s, block_tokens: int, kept: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Add the requests of a batch, or those of them that are ``kept``."""
        blocks, cacheable = np.diff(item.keys.offsets), item.keys.cacheable
        if kept is not None:
            blocks, cacheable, input_tokens = blocks[kept], cacheable[kept], input_tokens[kept]
        full = input_tokens // block_tokens if block_tokens else np.zeros_like(input_tokens)
        self.requests += len(blocks)
        self.requests_with_blocks += int((blocks > 0).sum())
        self.blocks += int(blocks.sum())
        self.cacheable_blocks += int(cacheable.sum(dtype=np.int64))
        self.full_blocks += int(np.minimum(full, blocks).sum())
        self.input_tokens += int(input_tokens.sum())


class CurvePass:
    """One pass over ``trace``; afterwards ``read`` tells the figures of any capacity.

    ``asked``    what the whole trace asked for.
    ``counted``  what the requests that were counted asked for: all, or those in the sample.
    ``sampler``  None for the whole trace.
    """

    def __init__(self, plan: Plan, trace: Trace, sample: SampleChoice | None = None) -> None:
        trace.need_ids()
        self._keyed = keyed_trace(trace, [plan])
        self.block_tokens = trace.facts.block_tokens or 0
        self.asked = self.counted = Asked()
        self.sampler = None
        self._sums = ExactSums()
        if sample is None:
            self._onepass = OnePass(self._sums, block_tokens=self.block_tokens, dense=self._keyed.dense)
            return
        sample.check(trace)
        self.counted = Asked()
        self.sampler = Sampler(sample, plan.config.seed)
        self._group_asked = [Asked() for _ in range(GROUPS)]
        self._group_sums = GroupSums(self._sums, GRID, GROUPS)
        self._onepass = OnePass(
            self._group_sums,
            block_tokens=self.block_tokens,
            dense=False,  # dense ids of a sample have holes; numbered anew, they need no memory for them
            ruler=sample.ruler,
            salt=self.sampler.ruler_salt,
            trunk=sample.depth,
            shared=sample.by == "session",
        )

    def run(self) -> Iterator[int]:
        """Serve the whole trace; yields the rows of each batch."""
        for item in self._keyed.batches():
            input_tokens = numbers(item.batch.column("input_tokens")).astype(np.int64)
            arrival_ns = numbers(item.batch.column("arrival_ns"))
            self.asked.add(item, input_tokens, self.block_tokens)
            groups = None
            if self.sampler is not None:
                groups = self.sampler.choose(item)
                self.counted.add(item, input_tokens, self.block_tokens, groups >= 0)
                for group in np.unique(groups[groups >= 0]).tolist():
                    self._group_asked[group].add(item, input_tokens, self.block_tokens, groups == group)
            keys = item.keys
            self._onepass.run(keys.keys, keys.offsets, keys.cacheable, input_tokens, arrival_ns, groups)
            yield item.batch.num_rows

    @property
    def distinct(self) -> int:
        """Distinct cacheable blocks of the trace; with a sample, an estimate."""
        return self._onepass.distinct

    def changes(self) -> Int64s:
        """The capacities, rising, that hit more than one block less."""
        marks = np.zeros(self._sums.end, np.uint8)
        self._sums.mark_changes(marks)
        return np.flatnonzero(marks) + 1

    def read(self, capacities: Int64s) -> Floats:
        """The FIGURES of rising capacities, a row each."""
        out = np.zeros((len(capacities), len(FIGURES)))
        self._sums.read(np.ascontiguousarray(capacities), out)
        return out

    def groups(self) -> Iterator[tuple[Asked, Floats]]:
        """For each group of the sample that has requests, what they asked for and their FIGURES at GRID."""
        for group, asked in enumerate(self._group_asked):
            if asked.requests:
                out = np.zeros((len(GRID), len(FIGURES)))
                self._group_sums.read_group(group, out)
                yield asked, out

    def reuse_distances(self) -> Int64s:
        """64 counts: blocks at distance d, by the bit length of d."""
        counts = np.zeros(64, np.int64)
        self._sums.distance_counts(counts)
        return counts

    def reuse_times(self) -> list[int]:
        """64 counts: blocks whose last use was t nanoseconds before, by the bit length of t."""
        return self._onepass.reuse_times
