"""Captures of vLLM's and SGLang's events: a frame a ZMQ message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvbench.errors import TraceError, shorten
from kvbench.events.frames import open_message, read_frames
from kvbench.events.journal import Change, Heard
from kvbench.events.vllm import BlockRemoved, BlockStored, WireEvent, decode_batch, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GPU = "gpu"
"""Where blocks are when an engine does not say."""


class CaptureReader:
    """Reads a file. A worker is a topic and, where batches have one, a data-parallel rank. ``block_tokens`` are the
    sizes of the blocks that were stored."""

    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()
        self.block_tokens: set[int] = set()

    def read(self, path: Path) -> Iterator[Heard]:
        """The messages of a file. Raises TraceError, naming the frame."""
        for number, frame in enumerate(read_frames(path)):
            try:
                heard = self._heard(frame)
            except TraceError as error:
                raise TraceError(f"frame {number}: {error}") from None
            if heard is not None:
                yield heard

    def _heard(self, frame: object) -> Heard | None:
        if not isinstance(frame, list):
            raise TraceError(f"{shorten(frame)} is no list of a message's parts")
        opened = open_message(frame)
        if opened is None:
            return None
        topic, number, payload = opened
        batch = decode_batch(payload)
        self.unknown += batch.unknown
        worker = topic if batch.rank is None else f"{topic}/{batch.rank}"
        changes = [change for event in batch.events for change in _changes(event)]
        self.block_tokens |= {event.block_size for event in batch.events if isinstance(event, BlockStored)}
        return Heard(worker, number, batch.ts, changes)


def _changes(event: WireEvent) -> list[Change]:
    if isinstance(event, BlockStored | BlockRemoved):
        tier = event.medium.lower() if event.medium else GPU
        keys = [key_of(each) for each in event.block_hashes]
        part = event.group_idx or 0
        if isinstance(event, BlockRemoved):
            return [Change("DELETE", tier, key, None, part) for key in keys]
        parents = [None if event.parent_block_hash is None else key_of(event.parent_block_hash), *keys]
        return [Change("INSERT", tier, key, parent, part) for key, parent in zip(keys, parents, strict=False)]
    return [Change("CLEAR", None)]
