"""Prompts that are longer than a model takes: bad rows, or cut to what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.errors import ConfigError, TraceError
from kvbench.trace.blocksize import id_count
from kvbench.trace.columns import list_parts, numbers
from kvbench.trace.conform import rebuilt_list
from kvbench.units import MAX_TOKENS

if TYPE_CHECKING:
    from kvbench.trace.columns import Int64s
    from kvbench.trace.formats import ReadLog
    from kvbench.trace.schema import TraceFacts


class PromptLimit:
    """The most tokens that a prompt may have.

    A longer one is a bad row; or, with ``clip``, it keeps its first ``tokens`` tokens and the ids of these.
    ``clipped`` counts them. Raises ConfigError for a limit that is out of range.
    """

    def __init__(self, tokens: int, clip: bool = False) -> None:
        if not 1 <= tokens <= MAX_TOKENS:
            raise ConfigError(f"the most tokens of a prompt, {tokens}, must be from 1 to {MAX_TOKENS:,}")
        self.tokens = tokens
        self.clipped = 0
        self._clip = clip

    def applied(
        self, batch: pa.RecordBatch, row_numbers: Int64s, where: str, facts: TraceFacts, log: ReadLog
    ) -> tuple[pa.RecordBatch, Int64s]:
        """``batch`` within the limit, and the row numbers of what is left. Bad rows go to ``log``."""
        prompts = numbers(batch.column("input_tokens")).astype(np.int64)
        over = prompts > self.tokens
        if not over.any():
            return batch, row_numbers
        if self._clip:
            self.clipped += int(np.count_nonzero(over))
            return self._clipped(batch, np.minimum(prompts, self.tokens), facts), row_numbers
        for row in np.flatnonzero(over).tolist():
            rule = f"is more than the {self.tokens:,} that a prompt may have; --too-long clip would cut it"
            log.refuse(TraceError.at(where, int(row_numbers[row]), "input_tokens", int(prompts[row]), rule))
        return batch.filter(pa.array(~over)), row_numbers[~over]

    def note(self) -> str | None:
        """A sentence about what was clipped, if anything was."""
        return f"{self.clipped:,} prompts were clipped to {self.tokens:,} tokens" if self.clipped else None

    def _clipped(self, batch: pa.RecordBatch, kept: Int64s, facts: TraceFacts) -> pa.RecordBatch:
        counts = {"token_ids": kept, "block_ids": id_count(kept, facts.block_tokens or 1, facts.tail_rule)}
        arrays = {name: batch.column(name) for name in batch.schema.names}
        arrays["input_tokens"] = pa.array(kept, pa.uint32())
        for name, most in counts.items():
            if name in arrays:
                arrays[name] = _first_of_each(arrays[name], most)
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=batch.schema)


def _first_of_each(column: pa.Array, most: Int64s) -> pa.Array:
    """A list column, each row cut to its first ``most`` values."""
    parts = list_parts(column)
    lengths = np.minimum(parts.lengths, most)
    places = np.arange(len(parts.values)) - np.repeat(parts.offsets[:-1], parts.lengths)
    values = parts.values.filter(pa.array(places < np.repeat(lengths, parts.lengths)))
    return rebuilt_list(column, np.concatenate([[0], np.cumsum(lengths)]), values, column.type)
