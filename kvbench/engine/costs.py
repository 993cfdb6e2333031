"""What the phases of a store cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvbench.engine.stats import FETCH_PHASES, STORE_PHASES
from kvbench.errors import ConfigError
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from kvbench.engine.pool import EnginePool
    from kvbench.engine.stats import Phases
    from kvbench.serving.device import Device

COUNTS = ("read_chunks", "read_operations", "written_chunks", "write_operations")
"""Counters of a store that tell what was moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCosts:
    """Costs outside the tiers, whose devices are settings of theirs.

    ``hashed_tokens_per_s``  how fast keys are made.
    ``link``                 what GPU memory is read and written over, an operation a call: a device, see
                             :func:`kvbench.serving.devices.make_device`.
    """

    hashed_tokens_per_s: float | None = None
    link: Device | None = None

    def __post_init__(self) -> None:
        if self.hashed_tokens_per_s is not None and not 0 < self.hashed_tokens_per_s < math.inf:
            raise ConfigError(f"hashed_tokens_per_s = {self.hashed_tokens_per_s:g} must be above 0, and finite")

    def keys_ns(self, tokens: int) -> int | None:
        """Time to make the keys of so many tokens."""
        if self.hashed_tokens_per_s is None:
            return None
        return math.ceil(tokens * NS_PER_S / Fraction(self.hashed_tokens_per_s))

    def copy_out_ns(self, size_bytes: int | None) -> int | None:
        """Time to copy so many bytes out of the GPU, in one operation."""
        if self.link is None or size_bytes is None:
            return None
        return self.link.read_ns(size_bytes) if size_bytes else 0

    def copy_in_ns(self, size_bytes: int | None) -> int | None:
        """Time to copy so many bytes into the GPU, in one operation."""
        if self.link is None or size_bytes is None:
            return None
        return self.link.write_ns(size_bytes) if size_bytes else 0


class Meter:
    """Takes the time of one store or fetch, phase by phase, from what the tiers count of it.

    Phases, and the tiers within one, follow one another.
    """

    def __init__(self, costs: EngineCosts, pool: EnginePool, worker: int) -> None:
        self._costs = costs
        self._tiers = pool.core.tiers
        self._stores = pool.stores(worker)
        self._timed = all(tier.device is not None and tier.chunk_bytes is not None for tier in self._tiers)
        self._before = self._counts()

    def _counts(self) -> list[dict[str, int]]:
        """What each tier has counted so far."""
        if not self._timed:
            return []
        found = []
        for stores in self._stores:
            counts = [store.counters() for store in stores]
            found.append({name: sum(each[name] for each in counts) for name in COUNTS})
        return found

    def store_phases(self, tokens: int, size_bytes: int | None) -> Phases:
        """Time of each phase of a store that hashed ``tokens`` and copied ``size_bytes``."""
        times = (self._costs.keys_ns(tokens), self._costs.copy_out_ns(size_bytes), self._tiers_ns("written", "write"))
        return dict(zip(STORE_PHASES, times, strict=True))

    def fetch_phases(self, size_bytes: int | None) -> Phases:
        """Time of each phase of a fetch that copied ``size_bytes``."""
        times = (self._tiers_ns("read", "read"), self._costs.copy_in_ns(size_bytes))
        return dict(zip(FETCH_PHASES, times, strict=True))

    def _tiers_ns(self, moved: str, direction: str) -> int | None:
        if not self._timed:
            return None
        total = 0
        for tier, before, after in zip(self._tiers, self._before, self._counts(), strict=True):
            chunks = after[f"{moved}_chunks"] - before[f"{moved}_chunks"]
            operations = after[f"{direction}_operations"] - before[f"{direction}_operations"]
            if tier.device is not None and tier.chunk_bytes is not None and chunks:
                time_ns = tier.device.read_ns if direction == "read" else tier.device.write_ns
                total += time_ns(chunks * tier.chunk_bytes, max(operations, 1))
        return total


def add_phases(sums: Phases, phases: Phases) -> Phases:
    """Sums by phase; None where either is not known."""
    added: Phases = {}
    for name, total in sums.items():
        more = phases[name]
        added[name] = None if total is None or more is None else total + more
    return added
