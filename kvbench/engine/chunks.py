"""The chunks of one call, and how a stack of tiers is asked about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ArgumentError
from kvbench.tokens.arrays import whole_number
from kvbench.tokens.mixing import mix_ids

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvbench.tokens.hashers import HashedBlocks

    Int64s = npt.NDArray[np.int64]
    Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Chunks:
    """n chunks of a prompt of ``tokens`` tokens, of which ``hashed`` were hashed for this.

    ``starts``, ``ends``  int64, n; chunk i holds tokens ``starts[i]`` to ``ends[i] - 1``.
    ``keys``      uint64, n; what the tiers know each chunk by. A segment may stand in a prompt twice.
    """

    tokens: int
    hashed: int
    starts: Int64s
    ends: Int64s
    keys: Keys

    @classmethod
    def of(cls, blocks: HashedBlocks, tokens: int, hashed: int, word: int) -> Chunks:
        """The chunks of hashed blocks in the namespace with this word."""
        keys = np.ascontiguousarray(blocks.keys)
        if word:
            mixed = np.empty_like(keys)
            mix_ids(keys, np.array([0, len(keys)], np.int64), np.array([word], np.uint64), mixed)
            keys = mixed
        return cls(tokens, hashed, blocks.starts, blocks.ends, keys)

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, first: int) -> Part:
        """The chunks from ``first`` on, as the stack is asked about them."""
        if len(np.unique(self.keys)) == len(self):
            return Part(self, first, self.keys, np.arange(first, len(self)), first)
        # A request's keys are distinct, and those left out in front say nothing of their like behind.
        distinct, at, inverse = np.unique(self.keys[first:], return_index=True, return_inverse=True)
        order = np.argsort(at)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return Part(self, first, np.ascontiguousarray(distinct[order]), rank[inverse], 0)

    def ending_by(self, token: int) -> int:
        """How many chunks end at or before a token."""
        return int(np.searchsorted(self.ends, token, side="right"))

    def computed(self, num_computed_tokens: int) -> int:
        """How many leading chunks lie in what is computed already. Raises ArgumentError for more than there is."""
        computed = whole_number(num_computed_tokens)
        if computed is None or not 0 <= computed <= self.tokens:
            raise ArgumentError(
                f"num_computed_tokens = {num_computed_tokens} is not within {self.tokens} tokens, a whole number"
            )
        return self.ending_by(computed)

    def tokens_of(self, first: int, stop: int) -> int:
        """Tokens of the chunks from ``first`` to before ``stop``."""
        return int((self.ends[first:stop] - self.starts[first:stop]).sum())


@dataclass(frozen=True, slots=True)
class Part:
    """The chunks from ``first`` on.

    ``keys``      uint64, distinct; what a stack is asked for.
    ``position``  int64; where the key of each chunk from ``first`` on is in ``keys``.
    ``skip``      so many of the keys stand before them, and are left alone.
    """

    chunks: Chunks
    first: int
    keys: Keys
    position: Int64s
    skip: int

    def reach(self, keys: int) -> int:
        """How many leading chunks of the prompt are reached when so many keys are there."""
        behind = np.flatnonzero(self.position >= keys)
        return self.first + int(behind[0]) if len(behind) else len(self.chunks)

    def span(self, chunks: int) -> int:
        """How many keys the leading so many chunks of the prompt have."""
        mine = self.position[: max(0, chunks - self.first)]
        return int(mine.max()) + 1 if len(mine) else self.skip

    def tokens_of(self, keys: list[int]) -> int:
        """Tokens of the chunks with these keys, each counted once."""
        distinct, at = np.unique(self.position, return_index=True)
        sizes = dict(
            zip(distinct.tolist(), (self.chunks.ends - self.chunks.starts)[self.first :][at].tolist(), strict=True)
        )
        return sum(sizes[key] for key in keys if key in sizes)
