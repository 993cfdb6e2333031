"""The state that an event log describes: which store holds which blocks (semantics §7.1)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal

from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS
from kvbench.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

EVENT_RECORD = struct.Struct("<qqQQiiiBBBBB7x")
"""A record of ``EVENT_FIELDS``."""
EVENT_NAMES = [name for name, _ in EVENT_FIELDS]

Place = tuple[str | int, int]
"""A tier (name or number) and the number of one of its stores."""


DuplicateRule = Literal["refuse", "naive", "refcount"]


class Fold:
    """Folds events one by one. ``holdings`` has for each place its keys and their parents.

    A gap in a worker's sequence is an error that names the event. So is by the rule ``refuse`` one that
    cannot follow from the state: a block stored twice, or taken from where it is not. Engines that keep
    two copies of a block do send such events (vLLM does); by the rule ``naive`` a block is gone with the
    first removal, by ``refcount`` with as many removals as it was stored times. Both count in
    ``duplicates`` the blocks stored where they were, in ``unheld`` those taken from where they were not.
    """

    def __init__(self, rule: DuplicateRule = "refuse") -> None:
        self.rule = rule
        self.holdings: dict[Place, dict[int, int | None]] = {}
        self.sequences: dict[int, int] = {}
        self.duplicates = self.unheld = 0
        self._more: dict[Place, dict[int, int]] = {}

    def event(
        self,
        kind: str,
        place: Place,
        key: int,
        *,
        parent: int | None = None,
        source: Place | None = None,
        worker: int = 0,
        sequence: int | None = None,
    ) -> None:
        """Take in one event."""
        self._count(worker, sequence)
        what = f"event {sequence} of worker {worker}"
        if kind == "CLEAR":
            self.holdings[place] = {}
            self._more.pop(place, None)
            return
        if kind in ("DELETE", "MOVE"):
            self._remove(kind, place if kind == "DELETE" else source, key, what)
        if kind == "COPY" and (source is None or key not in self.holdings.get(source, {})):
            self._miss(kind, source, key, what)
        if kind != "DELETE":
            self._store(kind, place, key, parent, what)

    def _store(self, kind: str, place: Place, key: int, parent: int | None, what: str) -> None:
        held = self.holdings.setdefault(place, {})
        if key not in held:
            held[key] = parent
            return
        if self.rule == "refuse":
            raise TraceError(f"{what}: {kind} of key {key}, which is in {_named(place)} already")
        self.duplicates += 1
        if self.rule == "refcount":
            more = self._more.setdefault(place, {})
            more[key] = more.get(key, 0) + 1

    def _remove(self, kind: str, origin: Place | None, key: int, what: str) -> None:
        if origin is None or key not in self.holdings.get(origin, {}):
            self._miss(kind, origin, key, what)
            return
        more = self._more.get(origin, {})
        if key not in more:
            del self.holdings[origin][key]
        elif more[key] == 1:
            del more[key]
        else:
            more[key] -= 1

    def _miss(self, kind: str, origin: Place | None, key: int, what: str) -> None:
        if self.rule == "refuse":
            raise TraceError(f"{what}: {kind} of key {key}, which is not in {_named(origin)}")
        self.unheld += 1

    def take(self, events: bytes) -> None:
        """Take in records of :meth:`kvbench.cache.EventLog.tobytes`; tiers are numbers then."""
        for record in EVENT_RECORD.iter_unpack(events):
            values = dict(zip(EVENT_NAMES, record, strict=False))
            self.event(
                EVENT_KINDS[values["kind"]],
                (values["tier"], values["store"]),
                values["key"],
                parent=values["parent"] if values["has_parent"] else None,
                source=(values["source"], values["source_store"]) if values["source_store"] >= 0 else None,
                worker=values["worker"],
                sequence=values["sequence"],
            )

    def _count(self, worker: int, sequence: int | None) -> None:
        if sequence is None:
            return
        expected = self.sequences.get(worker, 0)
        if sequence < expected:
            raise TraceError(
                f"worker {worker}: event {sequence} follows event {expected - 1}: a row is doubled, or out of order"
            )
        if sequence > expected:
            follows = f"follows event {expected - 1}" if expected else "is the first"
            raise TraceError(f"worker {worker}: event {sequence} {follows}: events are missing")
        self.sequences[worker] = sequence + 1

    def keys(self) -> Iterable[tuple[Place, set[int]]]:
        """The keys of each place that holds any."""
        return [(place, set(held)) for place, held in sorted(self.holdings.items(), key=str) if held]


def _named(place: Place | None) -> str:
    return "no place" if place is None else f"store {place[1]} of tier {place[0]}"
