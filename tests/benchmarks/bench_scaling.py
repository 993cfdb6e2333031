"""The core alone: does the time of a block depend on how many are resident?"""

from __future__ import annotations

import numpy as np

from benchmarks.drive import replay
from benchmarks.streams import Stream, scaled

REQUEST_BLOCKS = 100
MEASURED_BLOCKS = scaled(2_000_000)


def chains(blocks: np.ndarray) -> Stream:
    """The ids as requests of 100 blocks."""
    ids = blocks[: max(1, len(blocks) // REQUEST_BLOCKS) * REQUEST_BLOCKS].astype(np.uint64)
    return Stream(ids, np.arange(0, len(ids) + 1, min(REQUEST_BLOCKS, len(ids)), dtype=np.int64))


class Resident:
    """Nanoseconds a block, with 10 thousand and with a million blocks resident."""

    params = ([10_000, 1_000_000], ["lru", "fifo"])
    param_names = ("resident blocks", "policy")

    def setup(self, resident, policy):
        from kvbench.plugins import load_registry
        from kvbench.specs import EvictionPolicySpec

        self.policy = load_registry(autoload=False).get(EvictionPolicySpec, policy).load()
        self.resident = scaled(resident)

    def track_hit(self, resident, policy):
        """Everything hits, chain by chain in a shuffled order."""
        rng = np.random.default_rng(4)
        count = max(1, self.resident // REQUEST_BLOCKS)
        order = np.concatenate([np.arange(count), rng.integers(0, count, max(1, MEASURED_BLOCKS // REQUEST_BLOCKS))])
        return self.ns_per_block((order[:, None] * REQUEST_BLOCKS + np.arange(REQUEST_BLOCKS)).ravel())

    track_hit.unit = "ns/block"

    def track_evict(self, resident, policy):
        """Nothing hits: every block is stored and evicts another."""
        return self.ns_per_block(np.arange(self.resident + MEASURED_BLOCKS))

    track_evict.unit = "ns/block"

    def ns_per_block(self, blocks):
        stream = chains(blocks)
        return min(replay(stream, self.resident, "tail-first", self.policy)[1] for _ in range(3)) / stream.blocks * 1e9
