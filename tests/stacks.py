"""Builds one worker's tier stack as a replay of a preset would, to be driven request by request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kvbench.cache import EventLog, StackedTier, TierStack
from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS
from kvbench.config import load_config
from kvbench.plugins import load_registry
from kvbench.replays.engine import Engine
from kvbench.replays.plan import make_plan
from kvbench.replays.tiers import TieredCore
from kvbench.trace.reader import open_trace
from kvbench.trace.schema import TraceFacts

SECOND_NS = 1_000_000_000


class Rig:
    """One worker under ``settings``, which are those of a run file; capacities are blocks here.

    Requests are a second apart.
    """

    def __init__(self, **settings: Any) -> None:
        table = pa.table(
            {"arrival_ns": [0], "input_tokens": [10], "block_ids": [[0]]},
            schema=pa.schema(
                [
                    pa.field("arrival_ns", pa.int64()),
                    pa.field("input_tokens", pa.uint32()),
                    pa.field("block_ids", pa.list_(pa.uint64())),
                ],
                metadata=TraceFacts(block_tokens=10, dense=False).to_metadata(),
            ),
        )
        trace = open_trace(table)
        plan = make_plan(load_config(None, settings), load_registry(autoload=False), trace)
        core = Engine(plan, trace, keep_events=True).core
        assert isinstance(core, TieredCore)
        assert core.log is not None
        self.core = core
        self.log: EventLog = core.log
        self.stack: TierStack = core.stacks[0]
        self.tiers: dict[str, StackedTier] = {
            name: stores[0] for name, stores in zip(core.tier_names, core.stores, strict=True)
        }
        self.served = 0

    def serve(self, chain: Iterable[int]) -> int:
        """Serve one request; returns its prefix hit."""
        hit = self.stack.serve(keys(chain), request=self.served, time_ns=self.served * SECOND_NS)
        self.served += 1
        return int(hit)

    def hits(self) -> dict[str, int]:
        """Blocks of the request just looked up that each tier delivered; tiers of none are left out."""
        credit = self.stack.last_credit
        found = {name: credit.count(level) for level, name in enumerate(self.tiers)}
        return {name: count for name, count in found.items() if count}

    def held(self, tier: str) -> set[int]:
        return set(self.tiers[tier].residents())

    def events(self, since: int = 0) -> list[tuple[str, str, int]]:
        """Kind, tier and key of the events from number ``since`` on."""
        names = list(self.tiers)
        events = np.frombuffer(self.log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))[since:]
        rows = zip(events["kind"].tolist(), events["tier"].tolist(), events["key"].tolist(), strict=True)
        return [(EVENT_KINDS[kind], names[tier], key) for kind, tier, key in rows]

    def victims(self, tier: str, since: int = 0) -> list[int]:
        """Keys that left a tier, in order."""
        return [key for kind, place, key in self.events(since) if (kind, place) == ("DELETE", tier)]

    def place(self, held: dict[str, Iterable[int]], chain: Iterable[int]) -> None:
        """Store ``chain`` everywhere, then take away from each tier what it is not to hold."""
        chain = list(chain)
        self.serve(chain)
        for name, tier in self.tiers.items():
            tier.remove(keys(key for key in chain if key not in set(held[name])))
            assert self.held(name) == set(held[name])


def keys(chain: Iterable[int]) -> npt.NDArray[np.uint64]:
    return np.fromiter(chain, dtype=np.uint64)


def tier(name: str, **settings: Any) -> dict[str, Any]:
    """A ``[[tiers]]`` table."""
    return {"name": name, **settings}
