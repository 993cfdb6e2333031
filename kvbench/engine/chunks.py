"""The chunks of one call as a stack of tiers knows them: distinct keys, and where each chunk's is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ArgumentError
from kvbench.tokens.mixing import mix_ids

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.tokens.hashers import HashedBlocks

    Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunks:
    """n chunks of a prompt of ``tokens`` tokens.

    ``starts``, ``ends``  int64, n; chunk i holds tokens ``starts[i]`` to ``ends[i] - 1``.
    ``keys``      uint64, one for each distinct chunk, in the order in which they first stand.
    ``position``  int64, n; where the key of each chunk is in ``keys``.
    """

    tokens: int
    starts: Int64s
    ends: Int64s
    keys: npt.NDArray[np.uint64]
    position: Int64s

    @classmethod
    def of(cls, blocks: HashedBlocks, tokens: int, word: int) -> Chunks:
        """The chunks of hashed blocks in the namespace with this word."""
        keys = np.ascontiguousarray(blocks.keys)
        if word:
            mixed = np.empty_like(keys)
            mix_ids(keys, np.array([0, len(keys)], np.int64), np.array([word], np.uint64), mixed)
            keys = mixed
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        if len(distinct) == len(keys):
            return cls(tokens, blocks.starts, blocks.ends, keys, np.arange(len(keys)))
        # A segment may stand in a prompt twice.
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return cls(tokens, blocks.starts, blocks.ends, keys[first[order]], rank[inverse])

    def __len__(self) -> int:
        return len(self.starts)

    def distinct(self, chunks: int) -> int:
        """How many of the keys the first so many chunks have."""
        return int(self.position[:chunks].max()) + 1 if chunks else 0

    def leading(self, keys: int) -> int:
        """How many leading chunks have their key among the first so many."""
        behind = np.flatnonzero(self.position >= keys)
        return int(behind[0]) if len(behind) else len(self)

    def ending_by(self, token: int) -> int:
        """How many chunks end at or before a token."""
        return int(np.searchsorted(self.ends, token, side="right"))

    def computed(self, num_computed_tokens: int) -> int:
        """How many leading chunks lie in what is computed already. Raises ArgumentError for more than there is."""
        if not 0 <= num_computed_tokens <= self.tokens:
            raise ArgumentError(f"num_computed_tokens = {num_computed_tokens} is not within {self.tokens} tokens")
        return self.ending_by(num_computed_tokens)

    def sizes(self, first: int, stop: int) -> Int64s:
        """Tokens of each of the chunks from ``first`` to before ``stop``."""
        return self.ends[first:stop] - self.starts[first:stop]

    def tokens_of(self, first: int, stop: int) -> int:
        """Tokens of the chunks from ``first`` to before ``stop``."""
        return int(self.sizes(first, stop).sum())
