"""The KV events of vLLM on the wire: batches in msgpack.

A batch is an array [time in seconds, events, data-parallel rank or nil]. Its events are maps with a key
``type`` since vLLM 0.24, which leave out fields at their defaults, and were arrays before: the type first, then
the fields in order, fewer of them the older the version. SGLang writes short arrays. All of these are read;
fields and events that are not known are passed over and counted.

Source: vllm/distributed/kv_events.py of vLLM 0.11 to 0.33.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from kvbench.errors import ArgumentError, TraceError, shorten

Hash = int | bytes
"""A block's hash: the whole digest, or its last 8 bytes as a number."""

Layout = Literal["map", "array"]
"""How events are written: as vLLM 0.24 and later do, or as 0.22 and 0.23 did."""

MASK_64 = 2**64 - 1


class BlockStored(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Blocks that follow each other were stored; the first one follows ``parent_block_hash``."""

    block_hashes: list[Hash]
    parent_block_hash: Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: Any = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: Any = None
    ownership: Any = None
    session_id: Any = None
    lookahead_token_ids: Any = None


class BlockRemoved(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Blocks are gone from ``medium``."""

    block_hashes: list[Hash]
    medium: str | None
    group_idx: int | None = None
    locality: Any = None
    ownership: Any = None


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True):
    """Nothing is cached any more."""


WireEvent = BlockStored | BlockRemoved | AllBlocksCleared

EVENT_TYPES: dict[str, type[WireEvent]] = {
    kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)
}
REQUIRED = {"BlockStored": 4, "BlockRemoved": 1, "AllBlocksCleared": 0}
"""How many leading fields any version or engine sends; the others may be missing."""

ARRAY_FIELDS = {"BlockStored": 11, "BlockRemoved": 3, "AllBlocksCleared": 0}
"""Fields of an event that is written as an array, those of vLLM 0.22 and 0.23."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``events`` of a data-parallel ``rank``, sent at ``ts`` (seconds). ``unknown`` counts what was passed over."""

    ts: float
    events: list[WireEvent]
    rank: int | None = None
    unknown: Counter[str] = field(default_factory=Counter, compare=False)


def decode_batch(payload: bytes) -> Batch:
    """The batch that ``payload`` holds. Raises TraceError if it is none."""
    try:
        raw = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise TraceError(f"is no msgpack: {error}") from None
    if not isinstance(raw, list) or len(raw) < 2 or not isinstance(raw[1], list):
        raise TraceError(f"{shorten(raw)} is no batch: an array of the time, the events and the rank is wanted")
    ts, events = raw[:2]
    rank = raw[2] if len(raw) > 2 else None
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        raise TraceError(f"time {shorten(ts)} of a batch is no number of seconds")
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int)):
        raise TraceError(f"rank {shorten(rank)} of a batch is no whole number")
    unknown: Counter[str] = Counter()
    if len(raw) > 3:
        unknown["EventBatch"] += len(raw) - 3
    read = [_event(event, unknown) for event in events]
    return Batch(float(ts), [event for event in read if event is not None], rank, unknown)


def _event(raw: object, unknown: Counter[str]) -> WireEvent | None:
    """One event; None if its type is not known."""
    name, values = _named(raw, unknown)
    kind = EVENT_TYPES.get(name)
    if kind is None:
        unknown[name] += 1
        return None
    known = kind.__struct_fields__
    for other in values.keys() - set(known):
        unknown[f"{name}.{other}"] += 1
    filled = {key: values.get(key) for key in known if key in values or key not in known[: REQUIRED[name]]}
    try:
        return msgspec.convert({"type": name, **filled}, kind)
    except msgspec.ValidationError as error:
        raise TraceError(f"{name}: {error}") from None


def _named(raw: object, unknown: Counter[str]) -> tuple[str, dict[str, Any]]:
    """The type of an event and its fields by name."""
    if isinstance(raw, dict) and isinstance(raw.get("type"), str):
        return raw["type"], {str(key): value for key, value in raw.items() if key != "type"}
    if isinstance(raw, list) and raw and isinstance(raw[0], str):
        kind = EVENT_TYPES.get(raw[0])
        names = kind.__struct_fields__ if kind else ()
        if kind and len(raw) - 1 > len(names):
            unknown[f"{raw[0]}[{len(names) + 1}:]"] += len(raw) - 1 - len(names)
        return raw[0], dict(zip(names, raw[1:], strict=False))
    raise TraceError(f"{shorten(raw)} is no event: a map with a type, or an array that starts with one, is wanted")


def encode_batch(batch: Batch, layout: Layout = "map") -> bytes:
    """The bytes that vLLM would send; ``array`` has no room for the newest fields.

    Raises ArgumentError for another layout.
    """
    if layout not in ("map", "array"):
        raise ArgumentError(f"layout {layout!r} is not known; there are map and array")
    events: list[Any] = batch.events if layout == "map" else [_array(event) for event in batch.events]
    return msgspec.msgpack.encode([batch.ts, events, batch.rank])


def _array(event: WireEvent) -> list[Any]:
    name = type(event).__name__
    names = event.__struct_fields__[: ARRAY_FIELDS[name]]
    return [name, *(getattr(event, each) for each in names)]


def key_of(hash_: Hash) -> int:
    """The 64-bit key of a block: a number as it is, of a digest the last 8 bytes, as vLLM shortens them."""
    if isinstance(hash_, bytes):
        return int.from_bytes(hash_[-8:], "big")
    return hash_ & MASK_64
