"""What was heard from each worker, as rows of kvbench's events table.

Messages of a worker are numbered. A number left out is a gap, one heard already a repeat that is dropped,
one that comes late fills its gap; a worker that starts to count anew has restarted and lost what it held.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from kvbench.errors import TraceError
from kvbench.results.events import EVENTS_SCHEMA
from kvbench.units import NS_PER_S

MAX_SPAN_S = 9_000_000_000
"""A span in nanoseconds has 64 bits."""


@dataclass(frozen=True, slots=True)
class Change:
    """A block came to, or left, one of its worker's stores; or a store was cleared.

    ``tier``    the store's tier; None for a CLEAR of all tiers.
    ``part``    tells apart a worker's stores in one tier: its rank, its attention group.
    ``shared``  the store belongs to all workers.
    """

    kind: Literal["INSERT", "DELETE", "CLEAR"]
    tier: str | None
    key: int = 0
    parent: int | None = None
    part: object = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """One message.

    ``worker``   who sent it.
    ``number``   its sequence number; None where the stream has none.
    ``time_s``   when it happened; None where the stream does not say.
    ``life``     a number that grows when the worker restarts; None where the stream has none.
    """

    worker: str
    number: int | None
    time_s: float | None
    changes: list[Change]
    life: int | None = None


class Missing:
    """Numbers that were left out, as ranges: memory is bounded by the messages heard, whatever the numbers."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return sum(end - start for start, end in self._ranges)

    def skip(self, start: int, end: int) -> None:
        """``start`` … ``end`` - 1 were left out; all are above those before."""
        self._ranges.append((start, end))

    def take(self, number: int) -> bool:
        """Take out ``number``; returns whether it was there."""
        at = bisect_right(self._ranges, number, key=lambda each: each[0]) - 1
        if at < 0 or number >= self._ranges[at][1]:
            return False
        start, end = self._ranges[at]
        self._ranges[at : at + 1] = [each for each in ((start, number), (number + 1, end)) if each[0] < each[1]]
        return True


@dataclass(slots=True)
class _Worker:
    id: int
    rows: int = 0
    following: int | None = None
    missing: Missing = field(default_factory=Missing)
    time_s: float | None = None
    life: int | None = None
    places: dict[tuple[str, int], None] = field(default_factory=dict)


class Journal:
    """Takes in messages and keeps the rows that they make until :meth:`take`.

    ``messages`` counts what was taken in, ``gaps`` the places where numbers are left out, ``repeats``
    messages that were dropped, ``late`` those that filled a gap, ``restarts`` of workers.
    """

    def __init__(self) -> None:
        self.messages = self.gaps = self.repeats = self.late = self.restarts = 0
        self.events = {"INSERT": 0, "DELETE": 0, "CLEAR": 0}
        self.origin_s: float | None = None
        self._workers: dict[str, _Worker] = {}
        self._stores: dict[str, dict[object, int]] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._time_ns = 0
        self._lost_before_restarts = 0

    @property
    def lost(self) -> int:
        """Messages that were never heard."""
        return sum(worker.missing.count for worker in self._workers.values()) + self._lost_before_restarts

    @property
    def workers(self) -> list[str]:
        """Names of the workers, in the order of their numbers."""
        return list(self._workers)

    @property
    def tiers(self) -> list[str]:
        """Names of the tiers, in the order in which they were first heard of."""
        return list(self._stores)

    def hear(self, heard: Heard) -> None:
        """Take in one message. Raises TraceError for a time that is none."""
        worker = self._workers.setdefault(heard.worker, _Worker(len(self._workers)))
        if heard.time_s is not None:
            self.origin_s = heard.time_s if self.origin_s is None else self.origin_s
            since_s = heard.time_s - self.origin_s
            if not abs(since_s) <= MAX_SPAN_S:
                raise TraceError(
                    f"time {heard.time_s:g} s is not within {MAX_SPAN_S:,} s of the first, {self.origin_s:g} s"
                )
            self._time_ns = round(since_s * NS_PER_S)
        if not self._is_new(worker, heard):
            self.repeats += 1
            return
        if heard.time_s is not None:
            worker.time_s = max(heard.time_s, worker.time_s or heard.time_s)
        for change in heard.changes:
            self._note(worker, change)
        self.messages += 1

    def take(self) -> pa.RecordBatch:
        """The rows since the last call."""
        columns = list(zip(*self._rows, strict=True)) or [()] * len(EVENTS_SCHEMA)
        self._rows = []
        arrays = [
            pa.array(list(values), field.type.value_type).dictionary_encode().cast(field.type)
            if pa.types.is_dictionary(field.type)
            else pa.array(list(values), field.type)
            for values, field in zip(columns, EVENTS_SCHEMA, strict=True)
        ]
        return pa.record_batch(arrays, schema=EVENTS_SCHEMA)

    def __len__(self) -> int:
        return len(self._rows)

    def _is_new(self, worker: _Worker, heard: Heard) -> bool:
        """Whether a message was not heard before; notes gaps and restarts."""
        if heard.life is not None and worker.life is not None and heard.life != worker.life:
            if heard.life < worker.life:
                return False
            self._restart(worker)
        worker.life = heard.life
        number = heard.number
        if number is None:
            return True
        if worker.following is not None and number < worker.following:
            if worker.missing.take(number):
                self.late += 1
                return True
            if not _counts_anew(worker, heard):
                return False
            self._restart(worker)
        if worker.following is not None and number > worker.following:
            self.gaps += 1
            worker.missing.skip(worker.following, number)
        worker.following = number + 1
        return True

    def _restart(self, worker: _Worker) -> None:
        self.restarts += 1
        self._lost_before_restarts += worker.missing.count
        worker.missing = Missing()
        worker.following = None
        for tier, store in worker.places:
            self._row(worker, "CLEAR", "restart", tier, store)

    def _note(self, worker: _Worker, change: Change) -> None:
        if change.tier is None:
            for tier, store in worker.places:
                self._row(worker, "CLEAR", "removed", tier, store)
            return
        owner = None if change.shared else worker.id
        stores = self._stores.setdefault(change.tier, {})
        store = stores.setdefault((owner, change.part), len(stores))
        if not change.shared:
            worker.places[change.tier, store] = None
        cause = "computed" if change.kind == "INSERT" else "removed"
        self._row(worker, change.kind, cause, change.tier, store, change.key, change.parent)

    def _row(
        self, worker: _Worker, kind: str, cause: str, tier: str, store: int, key: int = 0, parent: int | None = None
    ) -> None:
        self.events[kind] += 1
        row = (self.messages, self._time_ns, worker.id, worker.rows, kind, cause, tier, store, None, None, key, parent)
        self._rows.append(row)
        worker.rows += 1


def _counts_anew(worker: _Worker, heard: Heard) -> bool:
    """Whether a number below the last one is a new count, and no repeat: a repeat has its old time."""
    if heard.life is not None:
        return False
    if heard.time_s is None or worker.time_s is None:
        # After a first message alone, another of its number is a repeat.
        return heard.number == 0 and worker.following != 1
    return heard.time_s > worker.time_s
