"""Stress mixed into a trace: prompts that come once (a scan), or go round in a ring larger than the cache (a loop)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.errors import ConfigError
from kvbench.trace.columns import numbers
from kvbench.trace.synth import stream
from kvbench.trace.writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvbench.trace.reader import Trace

KINDS = {
    "scan": "prompts that nobody asks for again",
    "loop": "prompts that go round in a ring of 1.5 times the capacity",
}
RING = 1.5
FIRST_ID = 2**62
"""Block ids from here on are of the stress: no trace numbers that many."""


@dataclass(frozen=True, slots=True)
class Stress:
    """Prompts of ``prompt_blocks`` blocks that are ``share`` of the requests of the mix.

    ``ring``  prompts after which the first one comes again; None: never.
    """

    kind: str
    share: float
    prompt_blocks: int
    ring: int | None
    seed: int

    @classmethod
    def of(cls, kind: str, share: float, prompt_blocks: int, capacity_blocks: int, seed: int) -> Stress:
        """A stress for caches of ``capacity_blocks`` in all."""
        ring = max(int(RING * capacity_blocks) // prompt_blocks, 2) if kind == "loop" else None
        return cls(kind, share, prompt_blocks, ring, seed)

    def write(self, trace: Trace, path: Path) -> None:
        """Write the rows of ``trace``, and the stress among them, to ``path``.

        A row of the stress arrives with the row that it stands before. Raises ConfigError for a trace whose ids of
        blocks mean nothing in other sessions, or that has none.
        """
        check(trace)
        with TraceWriter(path, trace.schema, dataclasses.replace(trace.facts, dense=False)) as writer:
            for batch in self._mixed(trace):
                writer.write(batch)

    def _mixed(self, trace: Trace) -> Iterator[pa.RecordBatch]:
        draws = stream(self.seed, "stress", self.kind)
        odds = self.share / (1 - self.share)  # rows of the stress before each other row, on average
        made, owed = 0, draws.random()
        for batch in trace.batches():
            before = []
            for row in range(batch.num_rows):
                owed += 2 * odds * draws.random()
                before += [row] * int(owed)
                owed -= int(owed)
            added = self._rows(batch, np.array(before, np.int64), made, trace.facts.block_tokens or 1)
            made += len(before)
            order = np.argsort(np.concatenate([np.arange(batch.num_rows) + 0.5, before]), kind="stable")
            yield pa.concat_batches([batch, added]).take(pa.array(order))

    def _rows(
        self, batch: pa.RecordBatch, before: np.ndarray[tuple[int], np.dtype[np.int64]], first: int, block_tokens: int
    ) -> pa.RecordBatch:
        """Rows that stand before those of ``batch``, the first of them number ``first`` of the stress."""
        count = len(before)
        prompts = np.arange(first, first + count)
        prompts = prompts if self.ring is None else prompts % self.ring
        ids = FIRST_ID + prompts[:, None] * self.prompt_blocks + np.arange(self.prompt_blocks)
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(self.prompt_blocks)
        known = {
            "arrival_ns": pa.array(numbers(batch.column("arrival_ns"))[before]),
            "input_tokens": pa.array(np.full(count, self.prompt_blocks * block_tokens, np.uint32)),
            "block_ids": pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids.ravel().astype(np.uint64))),
        }
        arrays = [known[field.name] if field.name in known else pa.nulls(count, field.type) for field in batch.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def check(trace: Trace) -> None:
    """Raise ConfigError for a trace that no stress can be mixed into."""
    if trace.ids != "block_ids" or trace.facts.id_scope == "session":
        raise ConfigError(
            f"--stress mixes prompts of block ids of its own into a trace, and {trace.name} has "
            f"{'ids that mean something in their session only' if trace.ids == 'block_ids' else 'no block_ids'}; "
            "give --stress 0"
        )
