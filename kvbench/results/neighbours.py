"""Whose blocks are evicted for whom: what tenants hit, hold, and take from each other.

Memory: 8 bytes a distinct block, and for a batch 8 bytes a request and tenant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS
from kvbench.errors import TraceError
from kvbench.replays.engine import Engine
from kvbench.results.carry import Latest, Names
from kvbench.results.columns import RequestColumns
from kvbench.results.rates import ratio
from kvbench.trace.rows import Interner

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from kvbench.replays.plan import Plan
    from kvbench.trace.reader import Trace

    Int64s = npt.NDArray[np.int64]

NOBODY = -2
NAMELESS = "(none)"
"""What requests without a tenant are called."""

INSERT, DELETE = EVENT_KINDS.index("INSERT"), EVENT_KINDS.index("DELETE")
FIGURES = ("requests", "input_tokens", "hit_tokens", "infinite_hit_tokens")


@dataclass(slots=True)
class Neighbours:
    """What became of the tenants of a replay.

    ``names``    of the tenants, in first-seen order; arrays are by their numbers.
    ``capacity_blocks``  of the cache; ``hit_blocks`` in all.
    ``figures``  of each: see FIGURES.
    ``evicted``  blocks of a tenant (row) that were evicted for a request of another (column), or of its own.
    ``lost``     how many of them the tenant then stored again: hits that the eviction took.
    ``mean_blocks``, ``peak_blocks``  that a tenant had stored and were resident after a request: on average, at most.
    """

    names: list[str]
    capacity_blocks: int | None
    hit_blocks: int
    figures: dict[str, Int64s]
    evicted: Int64s
    lost: Int64s
    mean_blocks: npt.NDArray[np.float64]
    peak_blocks: Int64s

    def rates(self, hits: str = "hit_tokens") -> list[float | None]:
        """The token rate of each tenant."""
        pairs = zip(self.figures[hits].tolist(), self.figures["input_tokens"].tolist(), strict=True)
        return [ratio(hit, given) for hit, given in pairs]

    def rate(self, hits: str = "hit_tokens") -> float:
        """The token rate of all."""
        return ratio(int(self.figures[hits].sum()), int(self.figures["input_tokens"].sum())) or 0.0


@dataclass(slots=True)
class _Sums:
    """Sums by the numbers of tenants, which grow with these."""

    figures: Int64s = field(default_factory=lambda: np.zeros((len(FIGURES), 0), np.int64))
    evicted: Int64s = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    lost: Int64s = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    used: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    peak: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    used_sum: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))

    def grow(self, tenants: int) -> None:
        more = tenants - len(self.used)
        self.figures = np.pad(self.figures, ((0, 0), (0, more)))
        self.evicted, self.lost = (np.pad(each, (0, more)) for each in (self.evicted, self.lost))
        self.used, self.peak, self.used_sum = (
            np.pad(each, (0, more)) for each in (self.used, self.peak, self.used_sum)
        )


class NeighbourPass:
    """One replay of ``trace``, whose requests name their tenants, by one cache."""

    def __init__(self, plan: Plan, trace: Trace) -> None:
        if "tenant" not in trace.schema.names:
            raise TraceError(
                f"{trace.name} has no column tenant, so nobody is kept apart; name one on import (kvbench trace import "
                "--format columns,…,tenant=COLUMN), or try one that is made: kvbench trace make tenants"
            )
        self._engine = Engine(plan, trace, keep_events=True)
        self._block_tokens = trace.facts.block_tokens
        self._tiers = [tier.name for tier in plan.tiers or ()]
        self._names = Names()
        self._interner, self._latest = Interner(), Latest(NOBODY)
        self._sums = _Sums()
        self._rows = self._hit_blocks = 0

    def run(self) -> Iterator[int]:
        """Serve the whole trace; yields the rows of each batch."""
        for served in self._engine.run():
            columns = RequestColumns.of(served, self._block_tokens, self._tiers)
            tenants = self._names.of(served.batch.column("tenant").fill_null(NAMELESS))
            self._sums.grow(len(self._names.numbers))
            values = (
                np.ones_like(tenants),
                columns.input_tokens,
                columns.tokens_of(columns.hit_blocks),
                columns.tokens_of(columns.infinite_hit_blocks),
            )
            for at, each in enumerate(values):
                np.add.at(self._sums.figures[at], tenants, each)
            self._hit_blocks += int(columns.hit_blocks.sum())
            self._add_events(tenants)
            self._rows += len(tenants)
            yield len(tenants)

    def _add_events(self, tenants: Int64s) -> None:
        log, sums = self._engine.core.log, self._sums
        assert log is not None
        events = np.frombuffer(log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))
        request = events["request"] - self._rows
        doer = tenants[request]
        ids = np.empty(len(events), np.uint64)
        self._interner.intern(np.ascontiguousarray(events["key"]), ids)
        before = self._latest.before(ids.astype(np.int64), doer)
        stored, removed = events["kind"] == INSERT, events["kind"] == DELETE
        # Stored and evicted in turn: before an eviction comes who stored it, before storing who evicted it.
        np.add.at(sums.evicted, (before[removed], doer[removed]), 1)
        again = stored & (before != NOBODY)
        np.add.at(sums.lost, (doer[again], before[again]), 1)
        holder = np.where(removed, before, doer)
        change = stored.astype(np.int64) - removed
        for tenant in range(len(sums.used)):
            of_tenant = holder == tenant
            changes = np.bincount(request[of_tenant], weights=change[of_tenant], minlength=len(tenants))
            levels = sums.used[tenant] + np.cumsum(changes).astype(np.int64)
            sums.peak[tenant] = max(int(sums.peak[tenant]), int(levels.max(initial=0)))
            sums.used_sum[tenant] += int(levels.sum())
            sums.used[tenant] += int(change[of_tenant].sum())
        log.clear()

    def found(self) -> Neighbours:
        """What the pass found."""
        sums = self._sums
        return Neighbours(
            list(self._names.numbers),
            self._engine.capacity_blocks,
            self._hit_blocks,
            dict(zip(FIGURES, sums.figures, strict=True)),
            sums.evicted,
            sums.lost,
            sums.used_sum / max(self._rows, 1),
            sums.peak,
        )
