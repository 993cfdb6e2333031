"""``segment``: prompts are split at a separator, and each segment is keyed alone (semantics §2.4).

Documents that are set apart by a separator so have the same keys wherever they stand in a prompt.
Separators belong to no segment. A segment is cut into blocks of the usual size that are chained
within it, from the root of the namespace; so blocks keep their size, and hit tokens are exact. What
is left at the end of a segment is shorter than a block and has no key, and neither have separators.
A block that stands again in the same prompt is one block: it is asked for and counted once.

A lookup still ends at the first block that is missing (semantics §1): documents behind a new one do
not hit.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ConfigError
from kvbench.tokens.chained import HashingDatabase
from kvbench.tokens.database import KeyBatch
from kvbench.tokens.separators import parse_separator, segments
from kvbench.trace.columns import list_parts, numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from kvbench.tokens.arrays import Tokens
    from kvbench.tokens.hashes import ChainHash, Digest
    from kvbench.trace.schema import TraceFacts


class SegmentDatabase(HashingDatabase):
    """Keys from ``token_ids``; ``separator`` is token ids, set apart by spaces."""

    def __init__(self, facts: TraceFacts, columns: frozenset[str], *, hashing: ChainHash, separator: str) -> None:
        super().__init__(facts, columns, hashing=hashing)
        self.separator = parse_separator(separator)

    def keys(self, batch: pa.RecordBatch, *, keep_tails: bool) -> KeyBatch:
        if keep_tails:
            raise ConfigError("--tails keep has no effect on token database segment: it keys full blocks only")
        starts, values = list_parts(batch.column("token_ids"))
        tokens: Tokens = np.ascontiguousarray(numbers(values), "<u4")
        roots, rows = self.namespace_rows(batch)
        parents = self.parents(roots)
        digests: list[Digest] = []
        ends = [0]
        for row, (start, end) in zip(rows.tolist(), pairwise(starts.tolist()), strict=True):
            digests += self._digests(parents[row], tokens[start:end])
            ends.append(len(digests))
        offsets = np.array(ends, np.int64)
        keys = self.apart(self.hashing.keys(digests), offsets, roots, rows)
        return KeyBatch(keys, offsets, np.diff(offsets).astype(np.int32))

    def _digests(self, parent: Digest | None, tokens: Tokens) -> list[Digest]:
        """The digests of the full blocks of all segments, each once."""
        found: dict[Digest, None] = {}
        for start, end in segments(tokens, self.separator):
            blocks = self.hashing.hashable(end - start, self.block_tokens)
            reach = min(end, start + blocks * self.block_tokens + self.hashing.lookahead)
            if blocks:
                digests = self.hashing.chain_blocks(parent, tokens[start:reach], self.block_tokens)
                found |= dict.fromkeys(digests[:blocks])
        return list(found)
