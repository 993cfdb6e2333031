"""Keys from tokens: how fast the hash functions are at several block sizes."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.streams import chat, scaled


class Chained:
    """The ``chained`` token database over chats."""

    params = (["blake3", "sha256"], [16, 64, 256])
    param_names = ("algorithm", "block tokens")

    def setup(self, algorithm, block_tokens):
        from kvbench.tokens import make_hash
        from kvbench.tokens.chained import ChainedDatabase
        from kvbench.trace.schema import TraceFacts

        table = chat(scaled(40), ids="token", block_tokens=block_tokens).combine_chunks()
        (self.batch,) = table.to_batches()
        self.tokens = len(self.batch.column("token_ids").flatten())
        facts = TraceFacts(block_tokens=block_tokens)
        self.database = ChainedDatabase(facts, frozenset(table.schema.names), hashing=make_hash(algorithm))

    def time_keys(self, algorithm, block_tokens):
        self.database.keys(self.batch, keep_tails=False)

    def track_tokens_per_s(self, algorithm, block_tokens):
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            self.database.keys(self.batch, keep_tails=False)
            best = min(best, time.perf_counter() - began)
        return self.tokens / best

    track_tokens_per_s.unit = "tokens/s"


class Chunks:
    """Hash algorithms alone, over 256-token chunks of a NumPy array."""

    params = (
        [
            *("blake3", "sha256", "dynamo", "lmcache-builtin", "lmcache-mp", "lmcache-sha256-cbor,seed=0"),
            *("vllm-sha256,seed=0", "vllm-sha256-cbor,seed=0", "vllm-xxhash,seed=0"),
        ],
    )
    param_names = ("algorithm",)

    def setup(self, algorithm):
        from kvbench.tokens import make_hash

        self.hashing = make_hash(algorithm)
        self.tokens = np.random.default_rng(1).integers(0, 2**32, 256 * scaled(20_000), np.uint32)

    def track_chunks_per_s(self, algorithm):
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            chunks = self.hashing.chain_blocks(self.hashing.root, self.tokens, 256)
            best = min(best, time.perf_counter() - began)
        return len(chunks) / best

    track_chunks_per_s.unit = "chunks/s"
