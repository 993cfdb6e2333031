"""Builds the compiled replay from a plan and drives it over a trace, batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.cache import EventLog, Tier, make_seen
from kvbench.errors import ConfigError
from kvbench.eviction import EvictionPolicy, PolicyContext
from kvbench.replays.facts import RequestFacts
from kvbench.replays.order import COUNTS, OrderReplay
from kvbench.routing import KvbmIndex, RouterContext, RouterPolicy
from kvbench.seeds import stream_seed
from kvbench.specs import EvictionPolicySpec
from kvbench.tokens import KeyBatch
from kvbench.trace.readahead import read_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.replays.plan import Plan
    from kvbench.tokens import TokenDatabase
    from kvbench.trace.reader import Trace

DIRECT_TABLE_WORKERS = 2
"""Up to so many workers get direct tables on dense ids: four bytes a distinct block and worker,
which stays below what an exact seen set may take. More workers share nothing but the seen set."""


@dataclass(frozen=True, slots=True)
class Served:
    """One served batch.

    ``batch``  the rows of the trace.
    ``keys``   their keys.
    ``rows``   int32, requests × len(COUNTS): the counts of each request. Overwritten by the next batch.
    """

    batch: pa.RecordBatch
    keys: KeyBatch
    rows: npt.NDArray[np.int32]


class Engine:
    """One order replay of ``trace`` under ``plan``.

    ``capacity_blocks``  of each worker, None without bound.
    ``database``         the token database, None for a trace without ids.
    ``log``              the event log, None where nobody reads it.
    """

    def __init__(self, plan: Plan, trace: Trace, *, keep_events: bool = False) -> None:
        self.plan = plan
        self.trace = trace
        self.database: TokenDatabase | None = _make_database(plan, trace)
        self.capacity_blocks = _capacity_blocks(plan, trace, self.database)
        workers = plan.config.workers
        dense = self.database is not None and self.database.dense and plan.config.seen == "exact"
        direct = dense and workers <= DIRECT_TABLE_WORKERS
        self.log = EventLog() if keep_events or workers > 1 else None
        self.tiers = [self._make_tier(worker, direct) for worker in range(workers)]
        self._replay = OrderReplay(
            self.tiers,
            router=_make_router(plan),
            index=KvbmIndex(workers, dense) if workers > 1 else None,
            log=self.log,
            seen=make_seen(dense, self.tiers[0].direct_table if workers == 1 else None)
            if plan.config.seen == "exact"
            else None,
            keep_events=keep_events,
        )
        self._rows = np.zeros((0, len(COUNTS)), dtype=np.int32)
        self._facts = RequestFacts(_columns_of(plan))

    @property
    def distinct_blocks(self) -> int | None:
        """Distinct cacheable blocks asked for so far; None with ``seen = off``."""
        return self._replay.distinct if self.database is not None else None

    @property
    def resident_blocks(self) -> list[int]:
        """Blocks resident at each worker now."""
        return [tier.used for tier in self.tiers]

    def run(self) -> Iterator[Served]:
        """Serve the whole trace."""
        for batch in read_ahead(self.trace.batches()):
            yield self.serve(batch)

    def serve(self, batch: pa.RecordBatch) -> Served:
        """Serve one batch."""
        keys = _keys(self.database, batch, keep_tails=self.plan.config.tails == "keep")
        if len(self._rows) < batch.num_rows:
            self._rows = np.zeros((batch.num_rows, len(COUNTS)), dtype=np.int32)
        rows = self._rows[: batch.num_rows]
        time_ns, facts = self._facts.of(batch)
        self._replay.run(keys.keys, keys.offsets, keys.cacheable, rows, time_ns=time_ns, facts=facts)
        return Served(batch, keys, rows)

    def _make_tier(self, worker: int, direct: bool) -> Tier:
        policy = None
        if self.plan.policy is not None and self.capacity_blocks is not None:
            seed = stream_seed(self.plan.config.seed, f"policy/worker {worker}")
            policy = self.plan.policy.make(PolicyContext(self.capacity_blocks, seed, self.trace.facts.block_tokens))
            if not isinstance(policy, EvictionPolicy):
                raise ConfigError(
                    f"eviction policy {self.plan.policy.spec.name} made a {type(policy).__name__}, "
                    "which is no kvbench.eviction.EvictionPolicy"
                )
        return Tier(policy, order=self.plan.config.order, dense=direct, log=self.log, worker=worker)


def count_distinct(trace: Trace, database: TokenDatabase, *, keep_tails: bool) -> int:
    """Distinct cacheable blocks of a whole trace: one pass with a cache without bound."""
    tier = Tier(dense=database.dense)
    seen = make_seen(database.dense, tier.direct_table)
    replay = OrderReplay([tier], seen=seen)
    for batch in trace.batches():
        keys = database.keys(batch, keep_tails=keep_tails)
        replay.run(keys.keys, keys.offsets, keys.cacheable, np.zeros((batch.num_rows, len(COUNTS)), dtype=np.int32))
    return int(seen.distinct)


def _columns_of(plan: Plan) -> tuple[str, ...]:
    spec = plan.policy.spec if plan.policy is not None else None
    return spec.columns if isinstance(spec, EvictionPolicySpec) else ()


def _make_database(plan: Plan, trace: Trace) -> TokenDatabase | None:
    if plan.tokens is None:
        return None
    database: TokenDatabase = plan.tokens.make(trace.facts, frozenset(trace.schema.names))
    return database


def _make_router(plan: Plan) -> RouterPolicy | None:
    if plan.router is None:
        return None
    router = plan.router.make(RouterContext(plan.config.workers, stream_seed(plan.config.seed, "router")))
    if not isinstance(router, RouterPolicy):
        raise ConfigError(
            f"router policy {plan.router.spec.name} made a {type(router).__name__}, "
            "which is no kvbench.routing.RouterPolicy"
        )
    return router


def _capacity_blocks(plan: Plan, trace: Trace, database: TokenDatabase | None) -> int | None:
    if plan.capacity_share is None:
        return plan.capacity_blocks
    if database is None:
        raise ConfigError(f"--capacity = {plan.config.capacity}: {trace.name} has no ids to count distinct blocks of")
    if not trace.rewindable:
        raise ConfigError(
            f"--capacity = {plan.config.capacity}: a share needs the trace twice, and {trace.name} can be read only "
            "once; give blocks, or save it to a file"
        )
    distinct = count_distinct(trace, database, keep_tails=plan.config.tails == "keep")
    return max(1, math.floor(distinct * plan.capacity_share))


def _keys(database: TokenDatabase | None, batch: pa.RecordBatch, *, keep_tails: bool) -> KeyBatch:
    if database is not None:
        return database.keys(batch, keep_tails=keep_tails)
    rows = batch.num_rows
    return KeyBatch(np.zeros(0, np.uint64), np.zeros(rows + 1, np.int64), np.zeros(rows, np.int32))
