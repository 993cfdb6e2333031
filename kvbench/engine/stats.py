"""What an engine has counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from kvbench.results.hitrates import TokenSums, hit_rates

STORE_PHASES = ("keys", "copy_out", "put")
"""The phases of a store, in order: hashing, the copy out of the GPU, writing to the tiers."""
FETCH_PHASES = ("get", "copy_in")
"""The phases of a fetch: reading from the tiers, the copy into the GPU."""

Phases = dict[str, int | None]


@dataclass(slots=True, kw_only=True)
class EngineStats:
    """Counts of one engine since it was made.

    ``store_requests``, ``retrieve_requests``, ``lookup_requests``  calls that were let in.
    ``degraded_operations``     calls that an unhealthy engine answered with nothing.
    ``frozen_stores``, ``passive_stores``  stores that were skipped.
    ``requested_store_tokens``  tokens of the chunks that were to be stored.
    ``stored_tokens``, ``stored_bytes``  of these, what some tier took that had not had it.
    ``overlap_tokens``          fetched, but there already, or behind ``max_fetch``: a chunk is fetched whole.
    ``wasted_tokens``, ``wasted_bytes``  claimed by a fetch and given back after a failing get; bytes
                                are None where the size of a block is not known.
    ``forced_unpins``           leases that ran out.
    ``sums``                    see :class:`kvbench.results.hitrates.TokenSums`.
    ``store_phase_ns``, ``fetch_phase_ns``  time of stores and fetches by phase, one after another, by the
                                engine's :class:`EngineCosts` and the tiers' devices; None for a phase whose
                                cost is not known.
    """

    store_requests: int = 0
    retrieve_requests: int = 0
    lookup_requests: int = 0
    degraded_operations: int = 0
    frozen_stores: int = 0
    passive_stores: int = 0
    requested_store_tokens: int = 0
    stored_tokens: int = 0
    stored_bytes: int | None = 0
    overlap_tokens: int = 0
    wasted_tokens: int = 0
    wasted_bytes: int | None = 0
    forced_unpins: int = 0
    sums: TokenSums = field(default_factory=TokenSums)
    store_phase_ns: Phases = field(default_factory=lambda: dict.fromkeys(STORE_PHASES, 0))
    fetch_phase_ns: Phases = field(default_factory=lambda: dict.fromkeys(FETCH_PHASES, 0))

    @property
    def hit_rates(self) -> dict[str, float | None]:
        """The rates of serving systems (see :mod:`kvbench.results.hitrates`), None where nothing was asked."""
        return hit_rates(self.sums)

    @property
    def stored_share(self) -> float | None:
        """Stored tokens by requested ones; None before the first store."""
        return self.stored_tokens / self.requested_store_tokens if self.requested_store_tokens else None

    @property
    def gap_tokens(self) -> int:
        """Tokens that retrieves asked for and did not get: of a prompt of which all is asked, what no tier has;
        of one that was looked up before (``max_fetch``), what failed."""
        return self.sums.asked - self.sums.delivered

    @property
    def store_ns(self) -> int | None:
        """Time of all stores: the sum of their phases; None if one is not known."""
        return _total(self.store_phase_ns)

    @property
    def fetch_ns(self) -> int | None:
        """The same of all fetches."""
        return _total(self.fetch_phase_ns)

    @property
    def store_bytes_per_s(self) -> float | None:
        """Throughput of stores; None where it is not known."""
        if not self.store_ns or self.stored_bytes is None:
            return None
        return self.stored_bytes * 1e9 / self.store_ns

    def to_dict(self) -> dict[str, Any]:
        """All counts and what follows from them, for JSON."""
        counts: dict[str, Any] = msgspec.to_builtins(self)
        counts["stored_share"] = self.stored_share
        counts["gap_tokens"] = self.gap_tokens
        counts["store_ns"] = self.store_ns
        counts["fetch_ns"] = self.fetch_ns
        counts["store_bytes_per_s"] = self.store_bytes_per_s
        counts["hit_rates"] = self.hit_rates
        return counts


def _total(phases: Phases) -> int | None:
    known = [phase for phase in phases.values() if phase is not None]
    return sum(known) if len(known) == len(phases) else None
