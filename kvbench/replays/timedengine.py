"""Drives a timed replay over a trace, batch by batch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from kvbench.replays.arrivals import Arrivals
from kvbench.replays.engine import Engine, Served, keyed_trace, resolve_tiers
from kvbench.replays.order import COUNTS
from kvbench.replays.tiers import total_capacity
from kvbench.replays.timecolumns import TIME_COLUMNS
from kvbench.replays.timedcore import TimedCore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbench.replays.arrivals import ArrivalBatch
    from kvbench.replays.plan import Plan
    from kvbench.replays.timedfacts import RunFacts
    from kvbench.trace.reader import Trace

ALL_DONE = "all requests done"

ROWS_BETWEEN_CHECKS = 500
"""Requests between two looks at whether the figures have converged."""


class TimedEngine:
    """One timed replay of ``trace`` under ``plan``; stands where :class:`kvbench.replays.engine.Engine` does."""

    has_bound = False

    def __init__(self, plan: Plan, trace: Trace, *, keep_events: bool = False) -> None:
        assert plan.serving is not None
        self.keyed = keyed_trace(trace, [plan])
        capacities = resolve_tiers(plan, self.keyed)
        self.core = TimedCore(plan, self.keyed, capacities, keep_events=keep_events)
        self.capacity_blocks = total_capacity(plan.tiers or (), capacities, plan.config.workers)
        self.arrivals = Arrivals(plan.serving, self.keyed, plan.config.seed)
        self._serving = plan.serving
        self._reads_ahead = plan.serving.arrivals.mode == "session"
        self._waiting: deque[Served] = deque()
        self._pushed = self._yielded = 0

    def run(self) -> Iterator[Served]:
        """Serve the whole trace; batches come when all of their requests have ended."""
        replay = self.core.replay
        for batch in self._batches():
            self._push(batch)
            if self._reads_ahead:
                continue
            if not replay.go_on():
                break
            yield from self._done(replay.done_batches)
        replay.go_on(final=True)
        yield from self._done(self._pushed)

    def _batches(self) -> Iterator[ArrivalBatch]:
        """The arrivals; in small pieces where somebody looks at the figures in between."""
        for batch in self.arrivals.batches():
            if self._serving.stop.converged is None:
                yield batch
                continue
            for first in range(0, len(batch.rows), ROWS_BETWEEN_CHECKS):
                yield batch.take(np.arange(first, min(first + ROWS_BETWEEN_CHECKS, len(batch.rows))))

    def stop(self, why: str) -> None:
        """End the run early: what is under way stays unfinished."""
        self.core.replay.stop(why)

    def facts(self) -> RunFacts:
        """What the run was, once it is over."""
        return self.core.facts(self.arrivals.stopped or ALL_DONE)

    def _push(self, batch: ArrivalBatch) -> None:
        count = len(batch.rows)
        keys = batch.keyed.keys
        rows = np.zeros((count, len(COUNTS)), dtype=np.int32)
        tier_rows = np.zeros((count, len(self.core.columns)), dtype=np.int32)
        times = np.zeros((count, len(TIME_COLUMNS)), dtype=np.int64)
        self.core.replay.push(
            keys.keys,
            keys.offsets,
            keys.cacheable,
            batch.arrival_ns,
            batch.input_tokens,
            batch.output_tokens,
            rows,
            tier_rows,
            times,
            outputs=keys.outputs,
            limits=keys.limits,
            facts=batch.keyed.facts,
            sessions=batch.session if self._reads_ahead else None,
            wait_ns=batch.wait_ns if self._reads_ahead else None,
        )
        self._pushed += 1
        self._waiting.append(Served(batch.keyed.batch, keys, rows, None, tier_rows, times, batch.rows))

    def _done(self, count: int) -> Iterator[Served]:
        while self._yielded < count:
            self._yielded += 1
            served = self._waiting.popleft()
            arrived = served.times is not None and served.times[:, 0] >= 0
            yield served if np.all(arrived) else served.only(np.flatnonzero(arrived))


AnyEngine = Engine | TimedEngine
