"""Builds the compiled replay from a plan and drives it over a trace, batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.cache import EventLog, Tier, make_seen
from kvbench.errors import ConfigError
from kvbench.eviction import EvictionPolicy, PolicyContext
from kvbench.replays.belady import BeladyBound
from kvbench.replays.dispatch import make_dispatcher, routing_columns
from kvbench.replays.future import Future
from kvbench.replays.keyed import Keyed, KeyedTrace
from kvbench.replays.order import COUNTS, OrderReplay
from kvbench.replays.tiers import TieredCore, tier_capacities, total_capacity
from kvbench.seeds import stream_seed
from kvbench.specs import EvictionPolicySpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.replays.plan import Plan
    from kvbench.tokens import KeyBatch
    from kvbench.trace.reader import Trace

    Int32s = npt.NDArray[np.int32]

DIRECT_TABLE_WORKERS = 2
"""Up to so many workers get direct tables on dense ids: four bytes a distinct block and worker,
which stays below what an exact seen set may take. More workers share nothing but the seen set."""


@dataclass(frozen=True, slots=True)
class Served:
    """One served batch.

    ``batch``   the rows of the trace.
    ``keys``    their keys.
    ``rows``    int32, requests × len(COUNTS): the counts of each request. Overwritten by the next batch.
    ``belady``  int32, the prefix hits of the Belady bound; None where it is not known.
    ``tiers``   int32, requests × the columns of ``tier_columns``; None without a tier stack. Overwritten, too.
    ``times``   int64, requests × :data:`kvbench.replays.timecolumns.TIMES`; None in an order replay. Overwritten, too.
    ``numbers``  their rows of the trace, where these are not in order; else None.
    """

    batch: pa.RecordBatch
    keys: KeyBatch
    rows: Int32s
    belady: Int32s | None = None
    tiers: Int32s | None = None
    times: npt.NDArray[np.int64] | None = None
    numbers: npt.NDArray[np.int64] | None = None

    def only(self, rows: npt.NDArray[np.int64]) -> Served:
        """Some of its requests."""
        keyed = Keyed(self.batch, self.keys, None, None).take(rows)
        return Served(
            keyed.batch,
            keyed.keys,
            self.rows[rows],
            None if self.belady is None else self.belady[rows],
            None if self.tiers is None else self.tiers[rows],
            None if self.times is None else self.times[rows],
            None if self.numbers is None else self.numbers[rows],
        )


class Core:
    """The caches, router and index of one order replay.

    ``capacity_blocks``  of each worker, None without bound.
    ``log``              the event log, None where nobody reads it.
    """

    def __init__(
        self, plan: Plan, keyed: KeyedTrace, capacity_blocks: int | None, *, keep_events: bool = False
    ) -> None:
        self.plan = plan
        self.capacity_blocks = capacity_blocks
        self.has_keys = keyed.database is not None
        self.block_tokens = keyed.trace.facts.block_tokens
        workers = plan.config.workers
        dense = keyed.dense and plan.config.seen == "exact"
        direct = dense and workers <= DIRECT_TABLE_WORKERS
        self.log = EventLog() if keep_events or workers > 1 else None
        self.tiers = [self._make_tier(worker, direct) for worker in range(workers)]
        self.dispatcher = (
            make_dispatcher(plan, dense=dense, capacity_blocks=capacity_blocks, block_tokens=self.block_tokens)
            if workers > 1
            else None
        )
        self._replay = OrderReplay(
            self.tiers,
            dispatcher=self.dispatcher,
            log=self.log,
            seen=make_seen(dense, self.tiers[0].direct_table if workers == 1 else None)
            if plan.config.seen == "exact"
            else None,
            keep_events=keep_events,
        )
        self._rows = np.zeros((0, len(COUNTS)), dtype=np.int32)

    @property
    def distinct_blocks(self) -> int | None:
        """Distinct cacheable blocks asked for so far; None with ``seen = off``."""
        return self._replay.distinct if self.has_keys else None

    @property
    def resident_blocks(self) -> list[int]:
        """Blocks resident at each worker now."""
        return [tier.used for tier in self.tiers]

    @property
    def tier_names(self) -> list[str]:
        """The one tier."""
        return [self.tiers[0].name]

    def serve(self, item: Keyed, next_use: Int32s | None) -> tuple[Int32s, None]:
        """Serve one batch; the rows are overwritten by the next."""
        count = item.batch.num_rows
        if len(self._rows) < count:
            self._rows = np.zeros((count, len(COUNTS)), dtype=np.int32)
        rows = self._rows[:count]
        keys = item.keys
        self._replay.run(
            keys.keys,
            keys.offsets,
            keys.cacheable,
            rows,
            time_ns=item.time_ns,
            facts=item.facts,
            next_use=next_use,
            outputs=keys.outputs,
            limits=keys.limits,
        )
        return rows, None

    def _make_tier(self, worker: int, direct: bool) -> Tier:
        policy = None
        if self.plan.policy is not None and self.capacity_blocks is not None:
            seed = stream_seed(self.plan.config.seed, f"policy/worker {worker}")
            policy = self.plan.policy.make(PolicyContext(self.capacity_blocks, seed, self.block_tokens))
            if not isinstance(policy, EvictionPolicy):
                raise ConfigError(
                    f"eviction policy {self.plan.policy.spec.name} made a {type(policy).__name__}, "
                    "which is no kvbench.eviction.EvictionPolicy"
                )
        return Tier(policy, order=self.plan.config.order, dense=direct, log=self.log, worker=worker)


class Engine:
    """One order replay of ``trace`` under ``plan``, next to the Belady bound where that is known.

    The bound is that of one cache as large as all workers' together.
    """

    def __init__(self, plan: Plan, trace: Trace, *, keep_events: bool = False) -> None:
        self.keyed = keyed_trace(trace, [plan])
        self.core: Core | TieredCore
        if plan.tiers is None:
            self.capacity_blocks = resolve_capacity(plan, self.keyed)
            self.core = Core(plan, self.keyed, self.capacity_blocks, keep_events=keep_events)
            bound = self.capacity_blocks and self.capacity_blocks * plan.config.workers
        else:
            capacities = resolve_tiers(plan, self.keyed)
            self.core = TieredCore(plan, self.keyed, capacities, keep_events=keep_events)
            bound = self.capacity_blocks = total_capacity(plan.tiers, capacities, plan.config.workers)
        self._bound_blocks = bound
        self._wants_bound = bound is not None and wants_bound(plan, self.keyed)
        self._wants_future = self._wants_bound or sees_future(plan)
        if sees_future(plan) and not trace.rewindable:
            raise ConfigError(f"{_policy_name(plan)} looks ahead, and {trace.name} can be read only once")

    @property
    def has_bound(self) -> bool:
        """Whether batches come with the hits of the Belady bound."""
        return self._wants_bound

    def run(self) -> Iterator[Served]:
        """Serve the whole trace."""
        if not self._wants_future:
            for item in self.keyed.batches():
                rows, tiers = self.core.serve(item, None)
                yield Served(item.batch, item.keys, rows, None, tiers)
            return
        with Future(self.keyed) as future:
            bound = None
            if self._wants_bound and self._bound_blocks is not None:
                bound = Bound(self.keyed, self._bound_blocks, future.requests)
            for item in self.keyed.batches():
                next_use = future.take(len(item.keys.keys))
                hits = bound.serve(item, next_use) if bound is not None else None
                rows, tiers = self.core.serve(item, next_use)
                yield Served(item.batch, item.keys, rows, hits, tiers)


class Bound:
    """The Belady bound of one capacity over a pass of ``keyed``."""

    def __init__(self, keyed: KeyedTrace, capacity_blocks: int, requests: int) -> None:
        self._numbering = keyed.numbering()
        self._bound = BeladyBound(capacity_blocks, requests)

    def serve(self, item: Keyed, next_use: Int32s) -> Int32s:
        """The prefix hits of each request of a batch."""
        hits = np.zeros(item.batch.num_rows, dtype=np.int32)
        keys = item.keys
        self._bound.run(self._numbering.ids(keys), keys.offsets, keys.cacheable, next_use, hits)
        return hits


def keyed_trace(trace: Trace, plans: list[Plan]) -> KeyedTrace:
    """The keyed trace that all of ``plans`` can share: they differ in policy and capacity at most."""
    columns = {column for plan in plans for column in columns_of(plan)}
    if any(plan.tiers is not None or plan.router is not None for plan in plans):
        columns.add("arrival_ns")  # ages of blocks, and of what routers know, are counted on the trace's clock
    for plan in plans:
        columns |= set(routing_columns(plan, trace))
    return KeyedTrace(
        trace,
        plans[0].tokens,
        keep_tails=plans[0].config.tails == "keep",
        columns=tuple(sorted(columns)),
        tenants=plans[0].tenants,
        store_output=plans[0].config.store_output,
        recompute=plans[0].config.recompute,
        shared_blocks=plans[0].config.shared_blocks,
    )


def columns_of(plan: Plan) -> tuple[str, ...]:
    """The trace columns that the plan's policy looks at."""
    return tuple(column for spec in policies_of(plan) for column in spec.columns)


def policies_of(plan: Plan) -> list[EvictionPolicySpec]:
    """The eviction policies of all tiers."""
    parts = [plan.policy, *(tier.policy for tier in plan.tiers or ())]
    return [part.spec for part in parts if part is not None and isinstance(part.spec, EvictionPolicySpec)]


def sees_future(plan: Plan) -> bool:
    """Whether a policy of the plan needs to know next uses."""
    ahead = any(spec.looks_ahead for spec in policies_of(plan))
    if ahead and plan.config.store_output:
        raise ConfigError(f"{_policy_name(plan)} looks ahead at prompts only, and --store-output stores answers, too")
    return ahead


def wants_bound(plan: Plan, keyed: KeyedTrace) -> bool:
    """Whether to find the Belady bound. ``auto``: where the trace can be read twice and its ids are
    dense, so that the bound takes no more memory than the seen set may. Raises ConfigError for
    ``on`` where it cannot be found."""
    belady = plan.config.belady
    if belady == "off" or (plan.config.capacity == "infinite" and plan.tiers is None):
        return False
    if plan.config.store_output:
        if belady == "on":
            raise ConfigError("--belady on: the bound knows prompts only, and --store-output stores answers, too")
        return False
    if belady == "on":
        if keyed.database is None:
            raise ConfigError(f"--belady on: {keyed.trace.name} has no ids, so nothing is known of its future")
        if not keyed.trace.rewindable:
            raise ConfigError(f"--belady on needs the trace twice, and {keyed.trace.name} can be read only once")
        return True
    return keyed.trace.rewindable and keyed.dense and plan.config.seen == "exact"


def resolve_capacity(plan: Plan, keyed: KeyedTrace, distinct: int | None = None) -> int | None:
    """The capacity of each worker in blocks, None without bound. A share takes one pass, unless the
    ``distinct`` blocks have been counted. Raises ConfigError for a share where they cannot be."""
    if plan.capacity_share is None:
        return plan.capacity_blocks
    name = keyed.trace.name
    if keyed.database is None:
        raise ConfigError(f"--capacity = {plan.config.capacity}: {name} has no ids to count distinct blocks of")
    if not keyed.trace.rewindable:
        raise ConfigError(
            f"--capacity = {plan.config.capacity}: a share needs the trace twice, and {name} can be read only "
            "once; give blocks, or save it to a file"
        )
    if distinct is None:
        distinct = count_distinct(keyed)
    blocks = math.floor(distinct * plan.capacity_share)
    if blocks == 0:
        raise ConfigError(f"--capacity = {plan.config.capacity} of {distinct:,} distinct blocks is less than one block")
    return blocks


def resolve_tiers(plan: Plan, keyed: KeyedTrace) -> list[int | None]:
    """The capacity of each store of each tier in chunks, None without bound; shares take one pass."""
    tiers = plan.tiers or ()
    shared = [tier for tier in tiers if tier.capacity_share is not None]
    if not shared:
        return tier_capacities(tiers, None)
    name = keyed.trace.name
    if keyed.database is None or not keyed.trace.rewindable:
        lacks = "has no ids" if keyed.database is None else "can be read only once"
        raise ConfigError(f"{shared[0].config.setting}: capacity = {shared[0].config.capacity}: {name} {lacks}")
    return tier_capacities(tiers, count_distinct(keyed))


def count_distinct(keyed: KeyedTrace) -> int:
    """Distinct cacheable blocks of a whole trace: one pass with a cache without bound."""
    tier = Tier(dense=keyed.dense)
    seen = make_seen(keyed.dense, tier.direct_table)
    replay = OrderReplay([tier], seen=seen)
    for item in keyed.batches():
        rows = np.zeros((item.batch.num_rows, len(COUNTS)), dtype=np.int32)
        replay.run(item.keys.keys, item.keys.offsets, item.keys.cacheable, rows)
    return int(seen.distinct)


def _policy_name(plan: Plan) -> str:
    ahead = [spec.name for spec in policies_of(plan) if spec.looks_ahead]
    return f"eviction policy {ahead[0]}" if ahead else "the policy"
