"""Tier stacks built from a plan and driven over a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.cache import AdmissionContext, AdmissionFilter, EventLog, StackedTier, TierStack, make_seen
from kvbench.errors import ConfigError
from kvbench.eviction import EvictionPolicy, PolicyContext
from kvbench.replays.dispatch import make_dispatcher
from kvbench.replays.faults import Fault, FaultPlan, read_faults
from kvbench.replays.order import COUNTS
from kvbench.replays.tiered import TieredReplay, tier_columns
from kvbench.seeds import stream_seed
from kvbench.trace.columns import numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.replays.keyed import Keyed, KeyedTrace
    from kvbench.replays.parts import ChosenPart
    from kvbench.replays.plan import Plan
    from kvbench.replays.tierplan import TierPlan

    Int32s = npt.NDArray[np.int32]

DIRECT_TABLE_STORES = 4
"""Up to so many stores get direct tables on dense ids, four bytes a distinct block each."""


@dataclass(frozen=True, slots=True)
class Store:
    """One store of a tier: what its counters say at some moment.

    ``level`` and ``index`` name it; ``counts`` are since the start, see
    :data:`kvbench.cache.stacked.TIER_COUNTS`.
    """

    level: int
    index: int
    used_chunks: int
    pinned_chunks: int
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """All stores after ``requests`` requests, the last of which arrived at ``time_ns``."""

    requests: int
    time_ns: int
    stores: list[Store]


class TieredCore:
    """The stacks, router and index of one order replay; stands where
    :class:`kvbench.replays.engine.Core` does for a single tier.

    ``samples`` has what was sampled since it was last emptied.
    """

    def __init__(
        self,
        plan: Plan,
        keyed: KeyedTrace,
        capacities: list[int | None],
        *,
        keep_events: bool = False,
    ) -> None:
        config = plan.config
        self.plan = plan
        self.capacities = capacities
        self.tiers = plan.tiers or ()
        self.has_keys = keyed.database is not None
        self.samples: list[Sample] = []
        workers = config.workers
        stores = sum(tier.stores(workers) for tier in self.tiers)
        # Partial blocks and copies have keys of their own, which are no ids of the trace.
        nameless = any(tier.config.partial != "free" for tier in self.tiers)
        dense = keyed.dense and config.seen == "exact" and not nameless
        self._holds_partials = any(tier.config.partial != "free" for tier in self.tiers)
        self._block_tokens = keyed.trace.facts.block_tokens
        self._direct = dense and stores <= DIRECT_TABLE_STORES
        self.log = EventLog() if keep_events or workers > 1 else None
        self._seen = make_seen(dense) if config.seen == "exact" else None
        self.stores = [
            [self._make_store(level, index, capacities[level], keyed) for index in range(tier.stores(workers))]
            for level, tier in enumerate(self.tiers)
        ]
        self._link()
        self.stacks = [self._make_stack(worker) for worker in range(workers)]
        self.dispatcher = (
            make_dispatcher(
                plan,
                dense=dense,
                capacity_blocks=self._first_blocks(),
                block_tokens=self._block_tokens,
                timed=plan.serving is not None,
            )
            if workers > 1
            else None
        )
        self._replay = self._make_replay(keep_events=keep_events)
        self._faults = FaultPlan()
        self._restarted: set[int] = set()
        if config.faults is not None:
            self._faults = read_faults(Path(config.faults), self.tier_names, workers)
            if config.retries and not any(fault.kind in ("get", "put") for fault in self._faults.faults):
                raise ConfigError(f"--retries has no effect: no get or put fails in {config.faults}")
        self._every = config.timeline_every if config.timeline is not None else 0
        self._served = 0
        self._sampled = -1
        self._rows = np.zeros((0, len(COUNTS)), dtype=np.int32)
        self._tier_rows = np.zeros((0, len(self.columns)), dtype=np.int32)

    def _make_replay(self, *, keep_events: bool) -> TieredReplay:
        return TieredReplay(
            self.stacks, dispatcher=self.dispatcher, log=self.log, seen=self._seen, keep_events=keep_events
        )

    @property
    def tier_names(self) -> list[str]:
        """Names of the tiers, fastest first."""
        return [tier.name for tier in self.tiers]

    @property
    def columns(self) -> list[str]:
        """Columns of the tier rows (see :func:`kvbench.replays.tiered.tier_columns`)."""
        return tier_columns(len(self.tiers))

    @property
    def distinct_blocks(self) -> int | None:
        """Distinct cacheable blocks asked for so far; None with ``seen = off``."""
        return self._replay.distinct if self.has_keys else None

    @property
    def resident_blocks(self) -> list[int]:
        """Blocks resident in each worker's own tiers now; shared ones are counted with their first worker."""
        found = [0] * self.plan.config.workers
        for level, tier in enumerate(self.tiers):
            for index, store in enumerate(self.stores[level]):
                found[index // tier.ranks * tier.group] += store.used * tier.config.chunk
        return found

    def store_states(self) -> list[Store]:
        """All stores as they are now."""
        return [
            Store(level, index, store.used, store.pinned, store.counters())
            for level, stores in enumerate(self.stores)
            for index, store in enumerate(stores)
        ]

    def serve(self, item: Keyed, next_use: Int32s | None) -> tuple[Int32s, Int32s]:
        """Serve one batch; rows and tier rows are overwritten by the next."""
        count = item.batch.num_rows
        if len(self._rows) < count:
            self._rows = np.zeros((count, len(COUNTS)), dtype=np.int32)
            self._tier_rows = np.zeros((count, len(self.columns)), dtype=np.int32)
        rows, tier_rows = self._rows[:count], self._tier_rows[:count]
        time_ns = item.time_ns if item.time_ns is not None else numbers(item.batch.column("arrival_ns"))
        partials = self._partials(item)
        for start, stop in self._pieces(item):
            self._set_faults(self._served, int(time_ns[start]))
            keys = item.keys
            self._replay.run_tiers(
                keys.keys,
                keys.offsets[start : stop + 1],
                keys.cacheable[start:stop],
                rows[start:stop],
                tier_rows[start:stop],
                time_ns=time_ns[start:stop],
                facts=None if item.facts is None else item.facts[start:stop],
                next_use=next_use,
                outputs=None if keys.outputs is None else keys.outputs[start:stop],
                limits=None if keys.limits is None else keys.limits[start:stop],
                partials=None if partials is None else partials[start:stop],
            )
            self._served += stop - start
            if self._every and self._served % self._every == 0:
                self.sample(int(time_ns[stop - 1]))
        return rows, tier_rows

    def _first_blocks(self) -> int | None:
        """Blocks that fit into one store of the fastest tier; None without bound."""
        if not self.tiers or self.capacities[0] is None:
            return None
        return self.capacities[0] * self.tiers[0].config.chunk

    def _partials(self, item: Keyed) -> npt.NDArray[np.uint8] | None:
        """Which requests have a partial last block, where some tier has to make room for it."""
        if not self._holds_partials or self._block_tokens is None:
            return None
        partial = numbers(item.batch.column("input_tokens")) % self._block_tokens != 0
        return np.asarray(partial, dtype=np.uint8)

    def sample(self, time_ns: int) -> None:
        """Note how all stores are now, once after each request."""
        if self._sampled == self._served:
            return
        self._sampled = self._served
        self.samples.append(Sample(self._served, time_ns, self.store_states()))

    def _pieces(self, item: Keyed) -> list[tuple[int, int]]:
        """The batch cut where a fault begins or ends, and where the timeline is sampled."""
        count = item.batch.num_rows
        cuts = set(self._faults.edges(item.batch, self._served))
        if self._every:
            cuts |= set(range(self._every - self._served % self._every, count, self._every))
        edges = [0, *sorted(cuts), count]
        return [(start, stop) for start, stop in pairwise(edges) if start < stop]

    def _set_faults(self, request: int, time_ns: int) -> None:
        if not self._faults.faults:
            return
        active = [fault for fault in self._faults.faults if fault.active(request, time_ns)]
        self._restart(active, request)
        for level, tier in enumerate(self.tiers):
            for index, store in enumerate(self.stores[level]):
                first = index // tier.ranks * tier.group
                mine = [fault for fault in active if fault.hits(tier.name, first, tier.group)]
                store.set_faults(
                    unhealthy=any(fault.kind == "unhealthy" for fault in mine),
                    get_fails=max((fault.share for fault in mine if fault.kind == "get"), default=0.0),
                    put_fails=max((fault.share for fault in mine if fault.kind == "put"), default=0.0),
                )
        for worker, stack in enumerate(self.stacks):
            stack.expect_faults(any(fault.kind == "get" for fault in active))
            stack.freeze(any(fault.kind == "freeze" and fault.worker in (None, worker) for fault in active))

    def _restart(self, active: list[Fault], request: int) -> None:
        """Clear the stores whose restart has come."""
        for number, fault in enumerate(self._faults.faults):
            if fault.kind != "restart" or fault not in active or number in self._restarted:
                continue
            self._restarted.add(number)
            for level, tier in enumerate(self.tiers):
                for index, store in enumerate(self.stores[level]):
                    first = index // tier.ranks * tier.group
                    if fault.hits(tier.name, first, tier.group):
                        store.clear_store(request, first)

    def _make_store(self, level: int, index: int, chunks: int | None, keyed: KeyedTrace) -> StackedTier:
        tier = self.tiers[level]
        config = tier.config
        name = f"{tier.name}/store {index}"
        tokens = keyed.trace.facts.block_tokens
        policy = None
        if tier.policy is not None and chunks is not None:
            seed = stream_seed(self.plan.config.seed, f"policy/{name}")
            policy = _make(
                tier.policy, EvictionPolicy, PolicyContext(chunks, seed, tokens * config.chunk if tokens else None)
            )
            if policy.never_evicts and config.high is not None:
                raise ConfigError(f"{config.setting}: high has no effect with policy {tier.policy.spec.name}")
        admission = None
        if tier.admission is not None:
            seed = stream_seed(self.plan.config.seed, f"admission/{name}")
            admission = _make(tier.admission, AdmissionFilter, AdmissionContext(chunks, seed))
        watermark: dict[str, Any] = {}
        if config.high is not None and chunks is not None:
            watermark = {
                "high": max(1, math.ceil(chunks * config.high)),
                "low": math.floor(chunks * config.low) if config.low is not None else 0,
                "ratio": config.ratio or 0.0,
                "period_ns": round(config.period_s * 1e9),
            }
        return StackedTier(
            policy,
            order=tier.order,
            dense=self._direct,
            log=self.log,
            worker=0,
            store=index,
            level=level,
            name=tier.name,
            multiple=config.chunk,
            write=tier.write,
            promotion=tier.promotion,
            touch_on=config.touch_on,
            spares=config.spare_own,
            whole=config.fit == "all",
            partial=config.partial,
            admission=admission,
            seen=self._seen,
            **watermark,
        )

    def _link(self) -> None:
        """Tie each store to the one that takes what it evicts."""
        for level in range(len(self.tiers) - 1):
            above, below = self.tiers[level], self.tiers[level + 1]
            if below.write != "back":
                continue
            for index, store in enumerate(self.stores[level]):
                group, rank = divmod(index, above.ranks)
                store.link_below(
                    self.stores[level + 1][group * above.group // below.group * below.ranks + rank % below.ranks]
                )

    def _make_stack(self, worker: int) -> TierStack:
        config = self.plan.config
        levels = []
        for level, tier in enumerate(self.tiers):
            first = worker // tier.group * tier.ranks
            levels.append(self.stores[level][first : first + tier.ranks])
        return TierStack(
            levels,
            worker=worker,
            walk=config.walk,
            spill=config.placement == "spill",
            retries=config.retries,
            fault_seed=stream_seed(config.seed, "faults"),
        )


def _make(part: ChosenPart, kind: type, context: object) -> Any:
    made = part.make(context)
    if not isinstance(made, kind):
        raise ConfigError(
            f"{part.spec.kind} {part.spec.name} made a {type(made).__name__}, which is no "
            f"{kind.__module__}.{kind.__name__}"
        )
    return made


def total_capacity(tiers: tuple[TierPlan, ...], capacities: list[int | None], workers: int) -> int | None:
    """Blocks that fit into all stores of all tiers together; None if one has no bound, or there is none."""
    total = 0
    for tier, chunks in zip(tiers, capacities, strict=True):
        if chunks is None:
            return None
        total += chunks * tier.config.chunk * (tier.stores(workers) // tier.ranks)
    return total or None


def tier_capacities(tiers: tuple[TierPlan, ...], distinct: int | None) -> list[int | None]:
    """Chunks of each store of each tier, shares resolved. Raises ConfigError for one of no chunk."""
    found: list[int | None] = []
    for tier in tiers:
        chunks = tier.capacity_chunks
        if tier.capacity_share is not None and distinct is not None:
            chunks = math.floor(distinct * tier.capacity_share) // tier.config.chunk
            if chunks == 0:
                raise ConfigError(
                    f"{tier.config.setting}: capacity = {tier.config.capacity} of {distinct:,} distinct blocks "
                    "is less than one chunk"
                )
        found.append(chunks)
    return found
