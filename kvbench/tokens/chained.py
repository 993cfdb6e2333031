"""``chained``: the key of a block is the hash of its tokens and of everything before them.

Byte layout (semantics §2.2): ``digest_i = H(digest_{i-1} ‖ tokens_i)`` with tokens as
little-endian unsigned 32-bit integers and ``digest_{-1}`` the 32-byte root of the namespace; the
key is the first 8 bytes of the digest, little-endian. With n distinct blocks the odds that any
two of them share a key are about n²/2⁶⁵ (semantics §2.5): 3 in 100,000,000 for a million blocks.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from blake3 import blake3

from kvbench.errors import ConfigError, TraceError
from kvbench.tokens.database import KeyBatch, TokenDatabase
from kvbench.tokens.namespace import Namespace
from kvbench.trace.columns import list_parts, numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from kvbench.trace.schema import TraceFacts


def blake3_digest(data: bytes) -> bytes:
    """32-byte BLAKE3 digest."""
    return blake3(data).digest()


def sha256_digest(data: bytes) -> bytes:
    """32-byte SHA-256 digest."""
    return hashlib.sha256(data).digest()


ALGORITHMS: dict[str, Callable[[bytes], bytes]] = {"blake3": blake3_digest, "sha256": sha256_digest}


class ChainedDatabase(TokenDatabase):
    """Keys from ``token_ids``; ``algorithm`` is ``blake3`` or ``sha256``."""

    def __init__(self, facts: TraceFacts, columns: frozenset[str], *, algorithm: str = "blake3") -> None:
        super().__init__(facts, columns)
        if algorithm not in ALGORITHMS:
            raise ConfigError(f"algorithm {algorithm!r} is not one of {', '.join(ALGORITHMS)}")
        if facts.block_tokens is None:
            raise TraceError(
                "the file does not say its block size, and its token ids fit any; "
                "give one with --block-tokens, for example 16"
            )
        self.block_tokens = facts.block_tokens
        self.digest = ALGORITHMS[algorithm]

    def keys(self, batch: pa.RecordBatch, *, keep_tails: bool) -> KeyBatch:
        starts, values = list_parts(batch.column("token_ids"))
        lengths = np.diff(starts)
        full = lengths // self.block_tokens
        blocks = -(-lengths // self.block_tokens)
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int64)
        np.cumsum(blocks, out=offsets[1:])
        data = numbers(values).astype("<u4", copy=False).tobytes()
        roots, rows = self.namespace_rows(batch)
        keys = bytearray()
        for row, start, end in zip(rows.tolist(), starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            self._chain(keys, roots[row] or Namespace().root(), data, 4 * start, 4 * end)
        cacheable = blocks if keep_tails else full
        return KeyBatch(np.frombuffer(keys, dtype="<u8").astype(np.uint64), offsets, cacheable.astype(np.int32))

    def _chain(self, keys: bytearray, digest: bytes, data: bytes, start: int, end: int) -> None:
        step = 4 * self.block_tokens
        for at in range(start, end, step):
            digest = self.digest(digest + data[at : min(at + step, end)])
            keys += digest[:8]
