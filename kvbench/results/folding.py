"""An events file folded into the state it leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.cache.events import EVENT_KINDS
from kvbench.cache.fold import Fold, Place
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


@dataclass(frozen=True, slots=True)
class Folded:
    """The state after ``events`` events; ``requests`` is the number of the last request among them, plus one.

    ``tiers``  names of the tiers, fastest first.
    """

    fold: Fold
    events: int
    requests: int
    tiers: list[str]

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
        return {"events": self.events, "requests": self.requests, "places": places}


def fold_file(file: Path, *, until: int | None = None) -> Folded:
    """Fold the events of ``file``, those of the first ``until`` requests if that is given.

    Raises TraceError, naming the file, for one that is no event log or contradicts itself.
    """
    fold, count, requests = Fold(), 0, 0
    try:
        for row in _rows(file):
            if until is not None and row["request"] >= until:
                break
            if row["kind"] not in EVENT_KINDS:
                raise TraceError(f"{row['kind']!r} is no kind of event; known: {', '.join(EVENT_KINDS)}")
            source = (row["source_tier"], row["source_store"]) if row["source_tier"] is not None else None
            fold.event(
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
    return Folded(fold, count, requests, _tiers(file))


def _tiers(file: Path) -> list[str]:
    """The tiers of the replay that wrote a log; none where the log is somebody else's."""
    text = (pq.read_metadata(file).metadata or {}).get(METADATA_KEY.encode(), b"{}")
    tiers = msgspec.json.decode(text).get("config", {}).get("tiers") or []
    return [tier["name"] for tier in tiers]


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with pq.ParquetFile(file) as parquet:
            lacks = [name for name in EVENTS_SCHEMA.names if name not in parquet.schema_arrow.names]
            if lacks:
                raise TraceError(f"it has no column {lacks[0]!r}; kvbench replay --events writes such files")
            for batch in parquet.iter_batches():
                yield from _typed(batch).to_pylist()
    except OSError as error:
        raise TraceError(f"cannot be read: {' '.join(reason(error).split())}") from None
    except pa.ArrowInvalid as error:
        raise TraceError(f"is no Parquet file: {' '.join(str(error).split())}") from None


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
