"""An events table into the messages that vLLM would have sent, so that a router's own index can be fed."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbench.atomic import atomic_path
from kvbench.errors import OutputError, TraceError, reason
from kvbench.events.frames import message, write_frame
from kvbench.events.vllm import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Layout, WireEvent, encode_batch
from kvbench.results.folding import event_rows, log_manifest
from kvbench.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEDIUMS = {"gpu": "GPU", "cpu": "CPU"}
STORAGE = "STORAGE"

Row = dict[str, Any]
Place = tuple[str, int]


def export_events(
    source: str | Path,
    output: str | Path,
    *,
    layout: Layout = "map",
    block_tokens: int | None = None,
    topic: str = "kvbench",
    force: bool = False,
) -> int:
    """Write the events table ``source`` as a capture of vLLM's messages; returns how many.

    A message has what one request changed on one worker: first what is gone, then what was stored, a
    block's parent before it where both are new. Its topic is ``topic@WORKER``. Blocks carry no tokens. In a
    tier that workers share, a change is told by the worker whose request caused it.

    ``layout``        of the events: ``map``, or ``array`` as before vLLM 0.24.
    ``block_tokens``  tokens of a block; by default what the replay that wrote the table says.

    Raises TraceError for a file that is no events table, or that does not say its block size.
    """
    path = Path(source)
    try:
        size = block_tokens or log_manifest(path).get("trace", {}).get("block_tokens")
        if not size:
            raise TraceError("does not say how many tokens a block has; give --block-tokens")
        sent: dict[int, int] = {}
        with atomic_path(output, force) as temporary, temporary.open("wb") as file:
            for worker, batch in _batches(path, size):
                number = sent.get(worker, 0)
                write_frame(file, message(f"{topic}@{worker}", number, encode_batch(batch, layout)))
                sent[worker] = number + 1
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from None
    except OSError as error:
        raise OutputError(f"{output} cannot be written: {reason(error)}") from error
    return sum(sent.values())


class _Held:
    """What the rows so far left in each place (tier and store), and which places each worker told of."""

    def __init__(self) -> None:
        self.keys: dict[Place, dict[int, None]] = {}
        self.places: dict[int, set[Place]] = {}

    def take(self, row: Row) -> None:
        """Take in one row."""
        place = (row["tier"], row["store"])
        self.places.setdefault(row["worker"], set()).add(place)
        if row["kind"] == "CLEAR":
            self.keys.pop(place, None)
        elif row["kind"] == "DELETE":
            self.keys.get(place, {}).pop(row["key"], None)
        else:
            self.keys.setdefault(place, {})[row["key"]] = None

    def are_all(self, worker: int, places: set[Place]) -> bool:
        """Whether ``places`` are all in which something is that the worker told of."""
        return all(place in places or not self.keys.get(place) for place in self.places.get(worker, ()))


def _batches(path: Path, size: int) -> Iterator[tuple[int, Batch]]:
    held = _Held()
    for (_, worker), rows in groupby(event_rows(path), key=lambda row: (row["request"], row["worker"])):
        mine = list(rows)
        yield worker, Batch(mine[0]["time_ns"] / NS_PER_S, _events(mine, size, held))


def _events(rows: list[Row], size: int, held: _Held) -> list[WireEvent]:
    """What rows of one request say, removals first where their order does not matter."""
    steps = [step for row in rows for step in _steps(row)]
    touched = [(step["tier"], step["store"], step["key"]) for step in steps]
    if len(set(touched)) == len(touched) and all(step["kind"] != "CLEAR" for step in steps):
        removed = [step for step in steps if step["kind"] == "DELETE"]
        stored = [step for step in steps if step["kind"] != "DELETE"]
        for step in steps:
            held.take(step)
        return [*_removals(removed), *_stored(_parents_first(stored), size)]
    cleared = {(step["tier"], step["store"]) for step in steps if step["kind"] == "CLEAR"}
    events: list[WireEvent] = []
    for step in steps:
        events += _plain(step, size, held, cleared)
        held.take(step)
    return events


def _steps(row: Row) -> list[Row]:
    """A row as storing and removing: a block that moves is stored and then removed."""
    if row["kind"] != "MOVE":
        return [row if row["kind"] in ("DELETE", "CLEAR") else {**row, "kind": "INSERT"}]
    gone = {**row, "kind": "DELETE", "tier": row["source_tier"], "store": row["source_store"]}
    return [{**row, "kind": "INSERT"}, gone]


def _plain(step: Row, size: int, held: _Held, cleared: set[Place]) -> Sequence[WireEvent]:
    if step["kind"] == "CLEAR":
        # vLLM clears all that a worker has; of one place, blocks are removed by name.
        if held.are_all(step["worker"], cleared):
            return [AllBlocksCleared()]
        keys: list[int | bytes] = [*held.keys.get((step["tier"], step["store"]), ())]
        return [BlockRemoved(keys, _medium(step["tier"]))] if keys else []
    return _removals([step]) if step["kind"] == "DELETE" else _stored([step], size)


def _removals(steps: list[Row]) -> list[WireEvent]:
    return [
        BlockRemoved([step["key"] for step in group], medium)
        for medium, group in groupby(steps, key=lambda step: _medium(step["tier"]))
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
    return sorted(ordered, key=lambda step: (step["tier"], step["store"]))


def _stored(steps: list[Row], size: int) -> list[WireEvent]:
    """One event for each run of blocks that follow each other."""
    events: list[WireEvent] = []
    run: list[Row] = []
    for step in [*steps, None]:
        if run and (step is None or step["tier"] != run[-1]["tier"] or step["parent"] != run[-1]["key"]):
            hashes = [each["key"] for each in run]
            events.append(BlockStored(hashes, run[0]["parent"], [], size, None, _medium(run[0]["tier"]), None))
            run = []
        if step is not None:
            run.append(step)
    return events


def _medium(tier: str) -> str:
    return MEDIUMS.get(tier, STORAGE)
