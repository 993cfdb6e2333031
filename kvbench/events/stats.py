"""What an events table says of the lives of blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.errors import TraceError
from kvbench.events.damage import Damage
from kvbench.results.folding import log_manifest
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

PERCENTILES = (50, 90, 99)
HEARD = ("messages", "gaps", "lost", "late", "repeats", "restarts", "unknown")


@dataclass(slots=True)
class TierStats:
    """Of one tier: times in seconds, blocks in blocks of any of its stores.

    ``lifetimes_s``  from when a block was stored until it was gone; of those that are gone.
    ``absences_s``   from when a block was gone until it was stored again: reuse that came too late.
    """

    stored: int = 0
    removed: int = 0
    duplicates: int = 0
    unheld: int = 0
    lifetimes_s: list[float] = field(default_factory=list)
    absences_s: list[float] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)

    def to_dict(self, resident: int) -> dict[str, Any]:
        """The figures; percentiles by linear interpolation, null where nothing was measured."""
        return {
            "stored": self.stored,
            "removed": self.removed,
            "distinct": len(self.keys),
            "resident_at_end": resident,
            "stored_again": len(self.absences_s),
            "duplicates": self.duplicates,
            "unheld": self.unheld,
            "lifetime_s": _percentiles(self.lifetimes_s),
            "absence_s": _percentiles(self.absences_s),
        }


def event_stats(source: str | Path) -> dict[str, Any]:
    """Events, workers, and for each tier how long blocks stay and how soon they come back.

    A block that a store has several times is gone when its last copy is. Rows that are doubled count once; how
    many these are, and how many are missing, is the log's ``damage``. Raises TraceError, naming the file, for one
    that is no events table.
    """
    path = Path(source)
    lives, damage = _Lives(), Damage()
    try:
        manifest = log_manifest(path)
        for row in damage.rows(path):
            lives.take(row)
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    heard = manifest.get("imported")
    return {
        "events": lives.events,
        "workers": len(lives.workers),
        "damage": damage.to_dict(),
        "heard": None if heard is None else {name: heard[name] for name in HEARD},
        "tiers": lives.tiers(),
    }


class _Lives:
    def __init__(self) -> None:
        self.events = 0
        self.workers: set[int] = set()
        self._stats: dict[str, TierStats] = {}
        self._held: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        self._gone: dict[tuple[str, int], dict[int, int]] = {}

    def take(self, row: dict[str, Any]) -> None:
        self.events += 1
        self.workers.add(row["worker"])
        place, key, now = (row["tier"], row["store"]), row["key"], row["time_ns"]
        if row["kind"] == "CLEAR":
            for held in list(self._held.get(place, {})):
                self._end(place, held, now)
            return
        if row["kind"] == "MOVE":
            self._remove((row["source_tier"], row["source_store"]), key, now)
        if row["kind"] == "DELETE":
            self._remove(place, key, now)
        else:
            self._store(place, key, now)

    def tiers(self) -> list[dict[str, Any]]:
        resident: dict[str, int] = {}
        for (tier, _), held in self._held.items():
            resident[tier] = resident.get(tier, 0) + len(held)
        return [{"tier": tier, **stats.to_dict(resident.get(tier, 0))} for tier, stats in self._stats.items()]

    def _tier(self, name: str) -> TierStats:
        return self._stats.setdefault(name, TierStats())

    def _store(self, place: tuple[str, int], key: int, now: int) -> None:
        stats = self._tier(place[0])
        stats.stored += 1
        stats.keys.add(key)
        held = self._held.setdefault(place, {})
        since, copies = held.get(key, (now, 0))
        stats.duplicates += copies > 0
        held[key] = (since, copies + 1)
        gone = self._gone.get(place, {}).pop(key, None)
        if gone is not None:
            stats.absences_s.append((now - gone) / NS_PER_S)

    def _remove(self, place: tuple[str, int], key: int, now: int) -> None:
        stats = self._tier(place[0])
        stats.removed += 1
        held = self._held.setdefault(place, {})
        if key not in held:
            stats.unheld += 1
            return
        since, copies = held[key]
        if copies > 1:
            held[key] = (since, copies - 1)
        else:
            self._end(place, key, now)

    def _end(self, place: tuple[str, int], key: int, now: int) -> None:
        since, _ = self._held[place].pop(key)
        self._tier(place[0]).lifetimes_s.append((now - since) / NS_PER_S)
        self._gone.setdefault(place, {})[key] = now


def _percentiles(values: Iterable[float]) -> dict[str, float | None]:
    measured = list(values)
    if not measured:
        return {f"p{each}": None for each in PERCENTILES}
    found = np.percentile(np.array(measured), PERCENTILES, method="linear")
    return {f"p{each}": float(value) for each, value in zip(PERCENTILES, found, strict=True)}
