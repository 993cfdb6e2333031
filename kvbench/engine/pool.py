"""What engines share: the stacks of tiers, the clock, and the leases on chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS, EVENT_REASONS
from kvbench.config import MAX_RETRIES, RunConfig, load_config
from kvbench.errors import ArgumentError, ConfigError
from kvbench.plugins import did_you_mean, load_registry
from kvbench.replays.engine import Engine
from kvbench.replays.plan import make_plan
from kvbench.replays.tiers import TieredCore
from kvbench.tokens.arrays import whole_number
from kvbench.trace.reader import open_trace
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvbench.cache import StackedTier, TierStack
    from kvbench.engine.base import EngineBase
    from kvbench.engine.chunks import Chunks
    from kvbench.engine.stats import EngineStats
    from kvbench.plugins import Registry

    Keys = npt.NDArray[np.uint64]

SETTINGS = (
    *("tiers", "preset", "placement", "walk", "workers", "workers_per_host", "tp"),
    *("model", "models", "kv_dtype", "block_bytes", "devices", "seed"),
)
"""Keys of a run file that an engine takes."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Chunks pinned in one store."""

    store: StackedTier
    keys: Keys


@dataclass(frozen=True, slots=True)
class Lease:
    """What a lookup promised, until ``deadline_ns``."""

    holds: tuple[Hold, ...]
    deadline_ns: int | None


class EnginePool:
    """The stores of all engines that were made from one another.

    ``clock``  nanoseconds that never go back.
    ``stats``        of each engine.
    ``operations``   how many calls all engines have had.
    ``waiting``      what is to be stored when there is room: whose, which chunks, and from which on.
    ``block_bytes``  of a chunk, all ranks' together; None if it is not known.
    ``get_fails``    share of failing gets by level.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        chunk_tokens: int,
        clock: Callable[[], int] | None,
        registry: Registry | None,
        keep_events: bool,
    ) -> None:
        retries = settings.pop("retries", 0)
        config = _config(settings)
        schema = pa.schema(
            [("arrival_ns", pa.int64()), ("input_tokens", pa.uint32()), ("block_ids", pa.list_(pa.uint64()))],
            metadata=TraceFacts(block_tokens=chunk_tokens, dense=False).to_metadata(),
        )
        trace = open_trace(schema.empty_table())
        # Gets and puts of an engine are made to fail by its caller, not by a fault plan.
        config = msgspec.structs.replace(config, retries=_retries(retries))
        plan = make_plan(config, load_registry() if registry is None else registry, trace)
        shared = [tier.config.setting for tier in plan.tiers or () if tier.capacity_share is not None]
        if shared:
            raise ConfigError(
                f"{shared[0]}: a capacity in percent is of a trace's blocks; give blocks, tokens or bytes"
            )
        core = Engine(plan, trace, keep_events=keep_events).core
        if not isinstance(core, TieredCore):
            raise TypeError("an engine's plan has tiers")
        self.core = core
        self.block_bytes = plan.block_bytes
        self.get_fails: dict[int, float] = {}
        self.clock: Callable[[], int] = _stands_still if clock is None else clock
        self.leases: dict[tuple[int, object], Lease] = {}
        self.stats: list[EngineStats] = []
        self.operations = 0
        self.waiting: list[tuple[EngineBase, Chunks, int]] = []

    @property
    def tier_names(self) -> list[str]:
        """Names of the tiers, fastest first."""
        return self.core.tier_names

    def stack(self, worker: int) -> TierStack:
        """The stack as a worker sees it. Raises ArgumentError for a worker that there is not."""
        if not 0 <= worker < len(self.core.stacks):
            raise ArgumentError(f"worker {worker}: there are workers 0 to {len(self.core.stacks) - 1}")
        return self.core.stacks[worker]

    def stores(self, worker: int) -> list[list[StackedTier]]:
        """The stores of each level that a worker uses, one a rank."""
        found = []
        for tier, stores in zip(self.core.tiers, self.core.stores, strict=True):
            first = worker // tier.group * tier.ranks
            found.append(stores[first : first + tier.ranks])
        return found

    def references(self) -> int:
        """Pins on all chunks of all stores."""
        return sum(store.references() for stores in self.core.stores for store in stores)

    def leased(self) -> int:
        """Pins that leases account for: equal to ``references``, always."""
        return sum(len(hold.keys) for lease in self.leases.values() for hold in lease.holds)

    def events(self) -> list[dict[str, Any]]:
        """The event log, an event a dictionary. Raises ArgumentError where none is kept."""
        if self.core.log is None:
            raise ArgumentError("no event log is kept; make the engine with keep_events=True")
        names = self.tier_names
        return [
            {
                "operation": int(event["request"]),
                "worker": int(event["worker"]),
                "sequence": int(event["sequence"]),
                "kind": EVENT_KINDS[event["kind"]],
                "reason": EVENT_REASONS[event["reason"]],
                "tier": names[event["tier"]],
                "store": int(event["store"]),
                "source_tier": names[event["source"]] if event["source_store"] >= 0 else None,
                "source_store": int(event["source_store"]) if event["source_store"] >= 0 else None,
                "key": int(event["key"]),
                "parent": int(event["parent"]) if event["has_parent"] else None,
            }
            for event in np.frombuffer(self.core.log.tobytes(), np.dtype(list(EVENT_FIELDS)))
        ]

    # -- leases --------------------------------------------------------------------------------

    def hold(self, worker: int, keys: Keys, first: int, credit: list[int]) -> tuple[Hold, ...]:
        """Pin blocks from ``first`` on, each in the tier that would deliver it."""
        holds = []
        for level, stores in enumerate(self.stores(worker)):
            multiple = stores[0].multiple
            chunks = sorted({at // multiple for at in range(first, len(credit)) if credit[at] == level})
            mine = keys[[(chunk + 1) * multiple - 1 for chunk in chunks]]
            for store in stores if chunks else ():
                if store.pin(mine) != len(mine):
                    raise AssertionError(f"tier {store.name} lacks chunks that it was asked to deliver")
                holds.append(Hold(store, mine))
        return tuple(holds)

    def release(self, name: tuple[int, object]) -> bool:
        """End a lease; False if there is none of this name."""
        lease = self.leases.pop(name, None)
        for hold in lease.holds if lease is not None else ():
            hold.store.unpin(hold.keys)
        return lease is not None

    def expire(self) -> None:
        """End the leases whose time is over."""
        now = self.clock()
        late = [
            name for name, lease in self.leases.items() if lease.deadline_ns is not None and lease.deadline_ns <= now
        ]
        for engine, name in late:
            self.release((engine, name))
            self.stats[engine].forced_unpins += 1

    # -- what is stored ------------------------------------------------------------------------

    def remove(self, worker: int, keys: Keys, first: int = 0) -> list[int]:
        """Drop blocks from ``first`` on from all tiers of a worker, in chunks that hold any of them, but not what
        is pinned; returns the positions of those that were in some tier and are now in none."""
        before = self.holders(worker, keys)
        for stores in self.stores(worker):
            for store in stores:
                multiple = store.multiple
                store.remove(np.ascontiguousarray(keys[multiple - 1 :: multiple][first // multiple :]))
        after = self.holders(worker, keys)
        return [at for at in range(len(keys)) if before[at] and not after[at]]

    def holders(self, worker: int, keys: Keys) -> list[list[int]]:
        """For each block the levels that have it, in all ranks."""
        found: list[list[int]] = [[] for _ in keys]
        for level, stores in enumerate(self.stores(worker)):
            multiple = stores[0].multiple
            for chunk in range(len(keys) // multiple):
                last = (chunk + 1) * multiple - 1
                if all(store.probe(keys[last : last + 1]) for store in stores):
                    for at in range(chunk * multiple, last + 1):
                        found[at].append(level)
        return found

    def refused(self, worker: int) -> int:
        """Chunks that found no room so far."""
        return sum(store.counters()["refused_room_chunks"] for stores in self.stores(worker) for store in stores)

    def clear(self, worker: int) -> None:
        """Drop all chunks that a worker can reach and nobody has pinned."""
        for stores in self.stores(worker):
            for store in stores:
                store.remove(np.array(store.residents(), np.uint64))


def _stands_still() -> int:
    """The clock of an engine without one."""
    return 0


def _retries(retries: object) -> int:
    number = whole_number(retries)
    if number is None or not 0 <= number <= MAX_RETRIES:
        raise ConfigError(f"retries = {retries!r} must be a whole number from 0 to {MAX_RETRIES:,}")
    return number


def _config(settings: dict[str, Any]) -> RunConfig:
    for name in settings:
        if name not in SETTINGS:
            raise ConfigError(f"setting {name!r} says nothing of an engine; {did_you_mean(name, SETTINGS)}")
    config = load_config(None, {**settings, "belady": "off", "seen": "off"})
    if config.tiers is None:
        raise ConfigError("an engine needs tiers, or a preset: tiers=['cpu,capacity=64GiB']")
    return config
