"""An events table into the messages that vLLM would have sent, so that a router's own index can be fed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.atomic import atomic_path
from kvbench.errors import OutputError, TraceError, reason
from kvbench.events.damage import Damage
from kvbench.events.frames import message, write_frame
from kvbench.events.vllm import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Layout, WireEvent, encode_batch
from kvbench.results.folding import log_manifest
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

MEDIUMS = {"gpu": "GPU", "cpu": "CPU"}
STORAGE = "STORAGE"

Row = dict[str, Any]
Place = tuple[str, int]


@dataclass(slots=True)
class ExportReport:
    """What was written: so many ``messages``, and the ``damage`` of the log that they tell of."""

    messages: int = 0
    damage: Damage = field(default_factory=Damage)


def export_events(
    source: str | Path,
    output: str | Path,
    *,
    layout: Layout = "map",
    block_tokens: int | None = None,
    topic: str = "kvbench",
    force: bool = False,
) -> ExportReport:
    """Write the events table ``source`` as a capture of vLLM's messages.

    A message has what one request changed on one worker: first what is gone, then what was stored, a
    block's parent before it where both are new. Its topic is ``topic@WORKER``. Blocks carry no tokens. In a
    tier that workers share, a change is told by the worker whose request caused it. Where a worker has several
    stores in a tier (of ranks or attention groups), an event's group tells them apart. Rows that are doubled are
    told once.

    ``layout``        of the events: ``map``, or ``array`` as before vLLM 0.24.
    ``block_tokens``  tokens of a block; by default what the replay that wrote the table says, or the events did that
                      were imported.

    Raises TraceError for a file that is no events table, or that does not say its block size.
    """
    path, report = Path(source), ExportReport()
    try:
        manifest = log_manifest(path)
        imported = manifest.get("imported", {})
        size = block_tokens or manifest.get("trace", {}).get("block_tokens") or imported.get("block_tokens")
        if not size:
            raise TraceError("does not say how many tokens a block has; give --block-tokens")
        sent: dict[int, int] = {}
        with atomic_path(output, force) as temporary, temporary.open("wb") as file:
            for worker, batch in _batches(report.damage.rows(path), size, imported.get("origin_s") or 0.0):
                number = sent.get(worker, 0)
                write_frame(file, message(f"{topic}@{worker}", number, encode_batch(batch, layout)))
                sent[worker] = number + 1
                report.messages += 1
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    except OSError as error:
        raise OutputError(f"{output} cannot be written: {reason(error)}") from error
    return report


class _Held:
    """What the rows so far left in each place (tier and store), and which places each worker told of."""

    def __init__(self) -> None:
        self.keys: dict[Place, Counter[int]] = {}
        self.places: dict[int, dict[Place, int | None]] = {}

    def take(self, row: Row) -> None:
        """Take in one row."""
        place = _place(row)
        if row["kind"] == "CLEAR":
            self.keys.pop(place, None)
            return
        held = self.keys.setdefault(place, Counter())
        held[row["key"]] += -1 if row["kind"] == "DELETE" else 1
        if held[row["key"]] <= 0:
            del held[row["key"]]

    def group(self, row: Row) -> int | None:
        """Which of the stores that the row's worker told of under this medium it is about; None for the first."""
        places = self.places.setdefault(row["worker"], {})
        place = _place(row)
        if place not in places:
            places[place] = sum(_medium(tier) == _medium(row["tier"]) for tier, _ in places) or None
        return places[place]

    def are_all(self, worker: int, places: set[Place]) -> bool:
        """Whether ``places`` are all in which something is that the worker told of."""
        return all(place in places or not self.keys.get(place) for place in self.places.get(worker, ()))


def _batches(rows: Iterator[Row], size: int, origin_s: float) -> Iterator[tuple[int, Batch]]:
    held = _Held()
    for (_, worker), group in groupby(rows, key=lambda row: (row["request"], row["worker"])):
        mine = list(group)
        yield worker, Batch(origin_s + mine[0]["time_ns"] / NS_PER_S, _events(mine, size, held))


def _events(rows: list[Row], size: int, held: _Held) -> list[WireEvent]:
    """What rows of one request say, removals first where their order does not matter."""
    steps = [{**step, "group": held.group(step)} for row in rows for step in _steps(row)]
    touched = [(step["tier"], step["store"], step["key"]) for step in steps]
    if len(set(touched)) == len(touched) and all(step["kind"] != "CLEAR" for step in steps):
        removed = [step for step in steps if step["kind"] == "DELETE"]
        stored = [step for step in steps if step["kind"] != "DELETE"]
        for step in steps:
            held.take(step)
        return [*_removals(removed), *_stored(_parents_first(stored), size)]
    events: list[WireEvent] = []
    for clears, run in groupby(steps, key=lambda step: step["kind"] == "CLEAR"):
        mine = list(run)
        if clears:
            events += _clears(mine, held)
        for step in mine:
            if not clears:
                events += _removals([step]) if step["kind"] == "DELETE" else _stored([step], size)
            held.take(step)
    return events


def _steps(row: Row) -> list[Row]:
    """A row as storing and removing: a block that moves is stored and then removed."""
    if row["kind"] != "MOVE":
        return [row if row["kind"] in ("DELETE", "CLEAR") else {**row, "kind": "INSERT"}]
    gone = {**row, "kind": "DELETE", "tier": row["source_tier"], "store": row["source_store"]}
    return [{**row, "kind": "INSERT"}, gone]


def _clears(steps: list[Row], held: _Held) -> list[WireEvent]:
    """vLLM clears all that a worker has; of some places, blocks are removed by name, as often as they are there."""
    places = {_place(step): step for step in steps}
    if held.are_all(steps[0]["worker"], set(places)):
        return [AllBlocksCleared()]
    removed = [
        {**step, "key": key} for place, step in places.items() for key in held.keys.get(place, Counter()).elements()
    ]
    return _removals(removed)


def _removals(steps: list[Row]) -> list[WireEvent]:
    return [
        BlockRemoved([step["key"] for step in mine], medium, group_idx=group)
        for (medium, group), mine in groupby(steps, key=lambda step: (_medium(step["tier"]), step["group"]))
    ]


def _parents_first(steps: list[Row]) -> list[Row]:
    """The stored blocks of each store, every one behind its parent."""
    waiting = {(step["tier"], step["store"], step["key"]): step for step in steps}
    ordered: list[Row] = []
    while waiting:
        tier, store, key = next(iter(waiting))
        chain = []
        while key is not None and (step := waiting.pop((tier, store, key), None)) is not None:
            chain.append(step)
            key = step["parent"]
        ordered += reversed(chain)
    return sorted(ordered, key=_place)


def _stored(steps: list[Row], size: int) -> list[WireEvent]:
    """One event for each run of blocks that follow each other."""
    events: list[WireEvent] = []
    run: list[Row] = []
    for step in [*steps, None]:
        if run and (step is None or _place(step) != _place(run[-1]) or step["parent"] != run[-1]["key"]):
            first, hashes = run[0], [each["key"] for each in run]
            medium, group = _medium(first["tier"]), first["group"]
            events.append(BlockStored(hashes, first["parent"], [], size, None, medium, None, group_idx=group))
            run = []
        if step is not None:
            run.append(step)
    return events


def _place(row: Row) -> Place:
    return row["tier"], row["store"]


def _medium(tier: str) -> str:
    return MEDIUMS.get(tier, STORAGE)
