"""An events file folded into the state it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.cache.events import EVENT_KINDS
from kvbench.cache.fold import DuplicateRule, Fold, Place
from kvbench.errors import TraceError, reason
from kvbench.results.events import EVENTS_SCHEMA
from kvbench.results.parquet import METADATA_KEY, write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATE_SCHEMA = pa.schema(
    [
        pa.field("tier", pa.string(), nullable=False),
        pa.field("store", pa.int32(), nullable=False),
        pa.field("key", pa.uint64(), nullable=False),
        pa.field("parent", pa.uint64()),
    ]
)
"""A row for each resident block: its place, its key, and the key of the block before."""

NO_LOG = (
    "is no Parquet file that can be read; kvbench replay --events and kvbench events import write such logs of events"
)


@dataclass(frozen=True, slots=True)
class Folded:
    """The state after ``events`` events; ``requests`` is the number of the last request among them, plus one.

    ``tiers``     names of the tiers, fastest first.
    ``diverging`` blocks that are resident by one of the rules ``naive`` and ``refcount`` and not by the other;
                  None by the rule ``refuse``.
    """

    fold: Fold
    events: int
    requests: int
    tiers: list[str]
    diverging: int | None = None

    def places(self) -> list[tuple[Place, dict[int, int | None]]]:
        """What each place holds, the fastest tier's first."""
        order = {name: at for at, name in enumerate(self.tiers)}
        return sorted(
            self.fold.holdings.items(),
            key=lambda item: (order.get(str(item[0][0]), len(order)), str(item[0][0]), item[0][1]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Counts by place."""
        places = [{"tier": place[0], "store": place[1], "blocks": len(held)} for place, held in self.places()]
        told: dict[str, Any] = {"events": self.events, "requests": self.requests, "places": places}
        if self.diverging is not None:
            told |= {
                "rule": self.fold.rule,
                "duplicates": self.fold.duplicates,
                "unheld": self.fold.unheld,
                "diverging": self.diverging,
            }
        return told


def fold_file(file: Path, *, until: int | None = None, duplicates: DuplicateRule | None = None) -> Folded:
    """Fold the events of ``file``, those of the first ``until`` requests if that is given.

    ``duplicates``  the rule for blocks that are stored twice (:class:`kvbench.cache.fold.Fold`); by default
                    ``refcount`` for events that were imported, ``refuse`` for those of a replay.

    Raises TraceError, naming the file, for one that is no event log or contradicts itself.
    """
    count = requests = 0
    try:
        rule = duplicates or default_rule(file)
        fold = Fold(rule)
        other = None if rule == "refuse" else Fold("naive" if rule == "refcount" else "refcount")
        for row in event_rows(file):
            if until is not None and row["request"] >= until:
                break
            source = (row["source_tier"], row["source_store"]) if row["source_tier"] is not None else None
            for each in (fold,) if other is None else (fold, other):
                each.event(
                    row["kind"],
                    (row["tier"], row["store"]),
                    row["key"],
                    parent=row["parent"],
                    source=source,
                    worker=row["worker"],
                    sequence=row["sequence"],
                )
            count += 1
            requests = max(requests, row["request"] + 1)
    except TraceError as error:
        raise TraceError(f"{file}: {error}") from None
    return Folded(fold, count, requests, _tiers(file), None if other is None else _differing(fold, other))


def _differing(one: Fold, other: Fold) -> int:
    """Blocks that are resident in one of two states only."""
    places = one.holdings.keys() | other.holdings.keys()
    return sum(len(one.holdings.get(place, {}).keys() ^ other.holdings.get(place, {}).keys()) for place in places)


def default_rule(file: Path) -> DuplicateRule:
    """How the duplicates of a log are taken if nobody says."""
    return "refcount" if "imported" in log_manifest(file) else "refuse"


def log_manifest(file: Path) -> dict[str, Any]:
    """What a log says of the run that wrote it; nothing where it is somebody else's."""
    try:
        metadata = pq.read_metadata(file).metadata or {}
    except OSError as error:
        raise TraceError(f"cannot be read: {' '.join(reason(error).split())}") from None
    except pa.ArrowInvalid:
        raise TraceError(NO_LOG) from None
    manifest: dict[str, Any] = msgspec.json.decode(metadata.get(METADATA_KEY.encode(), b"{}"))
    return manifest


def _tiers(file: Path) -> list[str]:
    """The tiers of the replay that wrote a log."""
    return [tier["name"] for tier in log_manifest(file).get("config", {}).get("tiers") or []]


def event_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a log. Raises TraceError for a file that is none."""
    try:
        with pq.ParquetFile(file) as parquet:
            lacks = [name for name in EVENTS_SCHEMA.names if name not in parquet.schema_arrow.names]
            if lacks:
                raise TraceError(f"it has no column {lacks[0]!r}; kvbench replay --events writes such files")
            for batch in parquet.iter_batches():
                yield from map(_checked, _typed(batch).to_pylist())
    except OSError as error:
        raise TraceError(f"cannot be read: {' '.join(reason(error).split())}") from None
    except pa.ArrowInvalid:
        raise TraceError(NO_LOG) from None


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    """A row that has a kind, and a source if its kind needs one."""
    if row["kind"] not in EVENT_KINDS:
        raise TraceError(f"{row['kind']!r} is no kind of event; known: {', '.join(EVENT_KINDS)}")
    if row["kind"] in ("MOVE", "COPY") and (row["source_tier"] is None or row["source_store"] is None):
        raise TraceError(f"event {row['sequence']} of worker {row['worker']}: {row['kind']} from no place")
    return row


def _typed(batch: pa.RecordBatch) -> pa.Table:
    """The columns of a log in their types, dictionaries as text."""
    columns = {}
    for field in EVENTS_SCHEMA:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        try:
            columns[field.name] = batch.column(field.name).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise TraceError(f"column {field.name!r} is {batch.column(field.name).type}, not {kind}") from None
        if not field.nullable and columns[field.name].null_count:
            raise TraceError(f"column {field.name!r} has nulls")
    return pa.table(columns)


def write_state(folded: Folded, output: str, *, force: bool) -> None:
    """Write the state, a row a resident block."""
    rows = [
        {"tier": place[0], "store": place[1], "key": key, "parent": parent}
        for place, held in folded.places()
        for key, parent in held.items()
    ]
    with write_parquet([(output, STATE_SCHEMA)], force=force) as (writer,):
        writer.write(pa.RecordBatch.from_pylist(rows, schema=STATE_SCHEMA))
        writer.finish({"events": folded.events, "requests": folded.requests})
