"""What the phases of a store cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbench.engine.stats import PHASES
from kvbench.errors import ConfigError

if TYPE_CHECKING:
    from kvbench.engine.pool import EnginePool
    from kvbench.serving.device import Device

SECOND_NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCosts:
    """Costs outside the tiers, whose devices are settings of theirs.

    ``hashed_tokens_per_s``  how fast keys are made.
    ``link``                 what GPU memory is read over, one operation a store: a device, see
                             :func:`kvbench.serving.devices.make_device`.
    """

    hashed_tokens_per_s: float | None = None
    link: Device | None = None

    def __post_init__(self) -> None:
        if self.hashed_tokens_per_s is not None and not self.hashed_tokens_per_s > 0:
            raise ConfigError(f"hashed_tokens_per_s = {self.hashed_tokens_per_s:g} must be above 0")

    def keys_ns(self, tokens: int) -> int | None:
        """Time to make the keys of so many tokens."""
        if self.hashed_tokens_per_s is None:
            return None
        return -(-tokens * SECOND_NS // int(self.hashed_tokens_per_s)) if tokens else 0

    def copy_ns(self, size_bytes: int | None) -> int | None:
        """Time to copy so many bytes out of the GPU, in one operation."""
        if self.link is None or size_bytes is None:
            return None
        return self.link.read_ns(size_bytes) if size_bytes else 0


class StoreMeter:
    """Takes the time of one store, phase by phase."""

    def __init__(self, costs: EngineCosts, pool: EnginePool, worker: int) -> None:
        self._costs = costs
        self._tiers = pool.core.tiers
        self._stores = pool.stores(worker)
        self._timed = all(tier.device is not None and tier.chunk_bytes is not None for tier in self._tiers)
        self._before = self._written()

    def _written(self) -> list[tuple[int, int]]:
        """Chunks and operations that each tier has written so far."""
        if not self._timed:
            return []
        found = []
        for stores in self._stores:
            counts = [store.counters() for store in stores]
            found.append((sum(each["written_chunks"] for each in counts), counts[0]["write_operations"]))
        return found

    def phases(self, tokens: int, size_bytes: int | None) -> dict[str, int | None]:
        """Time of each phase of a store that hashed ``tokens`` and copied ``size_bytes``; tiers are written
        one after another."""
        return dict(
            zip(PHASES, (self._costs.keys_ns(tokens), self._costs.copy_ns(size_bytes), self._put_ns()), strict=True)
        )

    def _put_ns(self) -> int | None:
        if not self._timed:
            return None
        total = 0
        for tier, before, after in zip(self._tiers, self._before, self._written(), strict=True):
            chunks, operations = after[0] - before[0], after[1] - before[1]
            if tier.device is not None and tier.chunk_bytes is not None and chunks:
                total += tier.device.write_ns(chunks * tier.chunk_bytes, max(operations, 1))
        return total


def add_phases(sums: dict[str, int | None], phases: dict[str, int | None]) -> dict[str, int | None]:
    """Sums by phase; None where either is not known."""
    added: dict[str, int | None] = {}
    for name, total in sums.items():
        more = phases[name]
        added[name] = None if total is None or more is None else total + more
    return added
