"""Calls of a cache engine: prompts of 64 chunks of 256 tokens over two tiers."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.streams import scaled

CHUNKS = 64


class Calls:
    """Chunks a second of each call."""

    params = (["store", "lookup", "retrieve"],)
    param_names = ("call",)

    def setup(self, call):
        from kvbench import CacheEngine

        self.engine = CacheEngine(tiers=["cpu,capacity=5000", "disk,capacity=200000"], chunk_tokens=256)
        rng = np.random.default_rng(1)
        self.prompts = [rng.integers(0, 2**17, 256 * CHUNKS, np.uint32) for _ in range(scaled(200))]
        if call != "store":
            for prompt in self.prompts:
                self.engine.store(prompt)

    def track_chunks_per_s(self, call):
        began = time.perf_counter()
        for prompt in self.prompts:
            getattr(self.engine, call)(prompt)
        return CHUNKS * len(self.prompts) / (time.perf_counter() - began)

    track_chunks_per_s.unit = "chunks/s"
