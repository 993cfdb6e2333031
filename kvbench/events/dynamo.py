"""Dynamo's router events, one JSON object a line.

    {"worker_id": 7, "event": {"event_id": 0, "dp_rank": 0, "data": {"stored": {…}}}}

The inner object may stand alone, and the whole may be wrapped as {"timestamp": ms, "event": …}, as Dynamo's
recorder writes it. ``data`` is one of {"stored": {"parent_hash", "blocks": [{"block_hash", "tokens_hash"}]}},
{"removed": {"block_hashes"}} and "cleared". The storage tiers are device, host_pinned and disk.

Source: ai-dynamo/dynamo lib/kv-router/src/protocols.rs, 1.4.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from kvbench.errors import TraceError, shorten
from kvbench.events.frames import opened
from kvbench.events.journal import Change, Heard
from kvbench.events.vllm import MASK_64

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIERS = {"device": "gpu", "host_pinned": "cpu", "disk": "disk"}


class Block(msgspec.Struct, frozen=True):
    """A stored block."""

    block_hash: int


class Stored(msgspec.Struct, frozen=True):
    """Blocks that follow each other."""

    blocks: list[Block]
    parent_hash: int | None = None


class Removed(msgspec.Struct, frozen=True):
    """Blocks that are gone."""

    block_hashes: list[int]


class Data(msgspec.Struct, frozen=True):
    """One of the two."""

    stored: Stored | None = None
    removed: Removed | None = None


class DynamoReader:
    """Reads a file."""

    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()

    def read(self, path: Path) -> Iterator[Heard]:
        """The messages of a file. Raises TraceError, naming the line."""
        with opened(path) as file:
            for number, line in enumerate(bytes(file.read()).splitlines(), 1):
                if line.strip():
                    try:
                        yield self._heard(msgspec.json.decode(line))
                    except (msgspec.DecodeError, TraceError, RecursionError) as error:
                        raise TraceError(f"line {number}: {error}") from None

    def _heard(self, raw: object) -> Heard:
        outer: dict[str, Any] = {}
        inner = raw
        while isinstance(inner, dict) and "event" in inner:
            outer |= inner
            inner = inner["event"]
        if not isinstance(inner, dict) or "data" not in inner:
            raise TraceError(f"{shorten(raw)} is no event: it has no data")
        tier = str(inner.get("storage_tier", outer.get("storage_tier", "device")))
        time_ms, number = outer.get("timestamp"), inner.get("event_id")
        if time_ms is not None and not isinstance(time_ms, int | float):
            raise TraceError(f"timestamp {shorten(time_ms)} is no number of milliseconds")
        if number is not None and not isinstance(number, int):
            raise TraceError(f"event_id {shorten(number)} is no whole number")
        worker = f"{outer.get('worker_id', 0)}/{inner.get('dp_rank', 0)}"
        changes = self._changes(inner["data"], TIERS.get(tier, tier))
        return Heard(worker, number, None if time_ms is None else time_ms / 1000, changes)

    def _changes(self, raw: object, tier: str) -> list[Change]:
        if raw == "cleared" or (isinstance(raw, dict) and "cleared" in raw):
            return [Change("CLEAR", None)]
        try:
            data = msgspec.convert(raw, Data)
        except msgspec.ValidationError as error:
            raise TraceError(f"data: {error}") from None
        if data.stored is not None:
            keys = [block.block_hash & MASK_64 for block in data.stored.blocks]
            first = data.stored.parent_hash
            parents = [None if first is None else first & MASK_64, *keys]
            return [Change("INSERT", tier, key, parent) for key, parent in zip(keys, parents, strict=False)]
        if data.removed is not None:
            return [Change("DELETE", tier, key & MASK_64) for key in data.removed.block_hashes]
        self.unknown[shorten(raw)] += 1
        return []
