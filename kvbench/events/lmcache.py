"""The ``.lct`` files of LMCache's recorder, at level ``events``.

The first frame is a header; each of the others has one batch of changes in one tier and back-end of one
instance, numbered from 1 within an incarnation. Accesses change no residency; a config batch says how large
a tier is.

Source: LMCache 0.5.6, trace recorder and the cache events of its coordinator (schema 1).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from kvbench.errors import TraceError, shorten
from kvbench.events.frames import read_frames
from kvbench.events.journal import Change, Heard
from kvbench.tokens.mixing import mix_ids
from kvbench.tokens.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC = b"LMCT"
VERSION = 1
BATCH = "events.batch"


class ObjectKey(msgspec.Struct, frozen=True):
    """What names an object: a chunk, and the rank and group whose part of it this is."""

    chunk_hash_hex: str
    model_name: str = ""
    kv_rank: int = 0
    object_group_id: int = 0
    cache_salt: str = ""


class Entry(msgspec.Struct, frozen=True):
    """One object of a batch."""

    key: ObjectKey


class EventBatch(msgspec.Struct, frozen=True):
    """Objects that were stored in, deleted from or read from a back-end of a tier."""

    instance_id: str
    seq: int
    event_type: Literal["store", "delete", "access", "config"]
    tier: str
    incarnation: int = 0
    backend: str = ""
    entries: list[Entry] = []
    shared: bool = False
    ts: float = 0.0
    capacity_bytes: int = 0
    capacity_revision: int = 0


class LmcacheReader:
    """Reads a file; ``accesses`` and ``capacities`` (bytes by tier, 0: no limit) are known when it is read."""

    def __init__(self) -> None:
        self.accesses = 0
        self.unknown: Counter[str] = Counter()
        self._capacities: dict[str, dict[str, int]] = {}
        self._revisions: dict[str, int] = {}
        self._first: tuple[str, str] | None = None

    @property
    def capacities(self) -> dict[str, dict[str, int]]:
        """By instance and tier, as the last revision of each instance names them."""
        return self._capacities

    def read(self, path: Path) -> Iterator[Heard]:
        """The messages of a file. Raises TraceError for what is no such file."""
        frames = read_frames(path)
        _check_header(next(frames, None))
        for number, frame in enumerate(frames, 1):
            if not isinstance(frame, dict) or frame.get("type") != "record":
                raise TraceError(f"frame {number} is no record: {shorten(frame)}")
            if frame.get("qualname") != BATCH:
                continue
            try:
                batch = msgspec.convert(frame.get("args"), EventBatch)
            except msgspec.ValidationError as error:
                raise TraceError(f"frame {number}: {error}") from None
            yield self._heard(batch, number)

    def _heard(self, batch: EventBatch, number: int) -> Heard:
        tier = f"{batch.tier}/{batch.backend}" if batch.backend else batch.tier
        changes: list[Change] = []
        if batch.event_type == "config":
            self._size(batch, tier)
        elif batch.event_type == "access":
            self.accesses += len(batch.entries)
        else:
            kind: Literal["INSERT", "DELETE"] = "INSERT" if batch.event_type == "store" else "DELETE"
            for entry in batch.entries:
                part = (entry.key.kv_rank, entry.key.object_group_id)
                changes.append(Change(kind, tier, self._key(entry.key, number), None, part, batch.shared))
        return Heard(batch.instance_id, batch.seq, batch.ts or None, changes, batch.incarnation)

    def _size(self, batch: EventBatch, tier: str) -> None:
        sizes = self._capacities.setdefault(batch.instance_id, {})
        if batch.capacity_revision != self._revisions.get(batch.instance_id):
            sizes.clear()
            self._revisions[batch.instance_id] = batch.capacity_revision
        sizes[tier] = batch.capacity_bytes

    def _key(self, key: ObjectKey, number: int) -> int:
        """The first 8 bytes of the chunk's hash, as LMCache shortens it. Objects of another model or salt than
        the file's first are set apart by them."""
        try:
            short = int.from_bytes(bytes.fromhex(key.chunk_hash_hex)[:8], "big")
        except ValueError:
            raise TraceError(f"frame {number}: chunk_hash_hex {shorten(key.chunk_hash_hex)} is no hex") from None
        owner = (key.model_name, key.cache_salt)
        self._first = self._first or owner
        if owner == self._first:
            return short
        root = Namespace(model=owner[0], salt=owner[1]).root()
        mixed = np.empty(1, dtype=np.uint64)
        roots = np.array([int.from_bytes(root[:8], "little")], dtype=np.uint64)
        mix_ids(np.array([short], dtype=np.uint64), np.array([0, 1], dtype=np.int64), roots, mixed)
        return int(mixed[0])


def _check_header(header: object) -> None:
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise TraceError("has no header of an LMCache recording in its first frame")
    if header.get("format_version") != VERSION or header.get("trace_schema_version") != VERSION:
        versions = f"{header.get('format_version')!r} and {header.get('trace_schema_version')!r}"
        raise TraceError(f"has versions {versions} of format and schema; {VERSION} and {VERSION} can be read")
    if header.get("level") != "events":
        raise TraceError(f"records level {header.get('level')!r}; only level 'events' says what was stored where")
