"""Event streams to read, and what the command line says of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from kvbench.events.frames import message, write_frame
from kvbench.events.vllm import Batch, BlockRemoved, BlockStored, WireEvent, encode_batch

if TYPE_CHECKING:
    from conftest import Cli


def stored(*keys: int, parent: int | None = None, medium: str | None = "GPU", group: int | None = None) -> BlockStored:
    return BlockStored(list(keys), parent, [], 16, None, medium, None, group_idx=group)


def removed(*keys: int, medium: str = "GPU", group: int | None = None) -> BlockRemoved:
    return BlockRemoved(list(keys), medium, group_idx=group)


def capture(path: Path, messages: Iterable[tuple[str, int, float, list[WireEvent]]]) -> None:
    """A file of messages: topic, number, time, events."""
    with path.open("wb") as file:
        for topic, number, ts, events in messages:
            write_frame(file, message(topic, number, encode_batch(Batch(ts, events))))


def told(cli: Cli, *arguments: str) -> Any:
    done = cli("events", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def resident(cli: Cli, tmp_path: Path, *options: str) -> set[tuple[str, int, int]]:
    """(tier, store, key) of what events.parquet folds to."""
    done = cli("events", "fold", "events.parquet", "-o", "state.parquet", "--force", *options)
    assert done.code == 0, done.err
    rows = pq.read_table(tmp_path / "state.parquet").to_pylist()
    return {(row["tier"], row["store"], row["key"]) for row in rows}
