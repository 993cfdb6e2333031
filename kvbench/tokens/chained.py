"""``chained``: the key of a block is the hash of its tokens and of everything before them.

Byte layout of kvbench's own algorithms (semantics §2.2): ``digest_i = H(digest_{i-1} ‖ tokens_i)``
with tokens as little-endian unsigned 32-bit integers and ``digest_{-1}`` the 32-byte root of the
namespace; the key is the first 8 bytes of the digest, little-endian. With n distinct blocks the odds
that any two of them share a key are about n²/2⁶⁵ (semantics §2.5): 3 in 100,000,000 for a million
blocks.

The algorithms of other systems have roots of their own, and know of no namespace; there the
namespace is mixed into the keys by a bijection, and keys without one are the system's own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kvbench.errors import ConfigError, TraceError
from kvbench.tokens.database import KeyBatch, TokenDatabase
from kvbench.tokens.mixing import mix_ids
from kvbench.trace.columns import list_parts, numbers

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from kvbench.tokens.arrays import Tokens
    from kvbench.tokens.hashes import ChainHash, Digest
    from kvbench.trace.schema import TraceFacts


class HashingDatabase(TokenDatabase):
    """What databases that hash ``token_ids`` have in common: block size, roots, namespaces.

    ``hashing``  the hash algorithm.
    """

    def __init__(self, facts: TraceFacts, columns: frozenset[str], *, hashing: ChainHash) -> None:
        super().__init__(facts, columns)
        if facts.block_tokens is None:
            raise TraceError(
                "the file does not say its block size, and its token ids fit any; "
                "give one with --block-tokens, for example 16"
            )
        self.block_tokens = facts.block_tokens
        self.hashing = hashing

    def parents(self, roots: list[bytes]) -> list[Digest | None]:
        """What the first block of a request is chained to, for each namespace root (empty: none)."""
        if not self.hashing.takes_root:
            return [self.hashing.root] * len(roots)
        return [root or self.hashing.root for root in roots]

    def apart(
        self,
        keys: npt.NDArray[np.uint64],
        offsets: npt.NDArray[np.int64],
        roots: list[bytes],
        rows: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.uint64]:
        """``keys`` with the namespaces told apart, where the algorithm has not done so."""
        if self.hashing.takes_root or not any(roots):
            return keys
        words = np.array([int.from_bytes(root[:8], "little") for root in roots], dtype=np.uint64)
        mixed = np.empty_like(keys)
        mix_ids(keys, offsets, np.ascontiguousarray(words[rows]), mixed)
        return mixed


class ChainedDatabase(HashingDatabase):
    """Keys from ``token_ids``: each prompt is one chain."""

    def keys(self, batch: pa.RecordBatch, *, keep_tails: bool) -> KeyBatch:
        if keep_tails and self.hashing.lookahead:
            raise ConfigError(
                f"--tails keep has no effect with a lookahead of {self.hashing.lookahead}: "
                "a last block has no tokens behind it, and is not hashed"
            )
        starts, values = list_parts(batch.column("token_ids"))
        lengths = np.diff(starts)
        full = np.maximum(lengths - self.hashing.lookahead, 0) // self.block_tokens
        blocks = -(-lengths // self.block_tokens)
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int64)
        np.cumsum(blocks, out=offsets[1:])
        tokens: Tokens = np.ascontiguousarray(numbers(values), "<u4")
        roots, rows = self.namespace_rows(batch)
        parents = self.parents(roots)
        digests: list[Digest] = []
        for row, (start, end) in zip(rows.tolist(), pairwise(starts.tolist()), strict=True):
            digests += self.hashing.chain_blocks(parents[row], tokens[start:end], self.block_tokens)
        keys = self.hashing.keys(digests)
        cacheable = blocks if keep_tails else full
        return KeyBatch(self.apart(keys, offsets, roots, rows), offsets, cacheable.astype(np.int32))
