"""Preset ``vllm`` against a plain model of vLLM's block pool, request by request."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.events import EVENT_FIELDS, EVENT_KINDS, EVENT_REASONS
from tests.stacks import Rig, keys, tier

CHAINS = [[100 * chain + at for at in range(6)] for chain in range(1, 5)]
for at, chain in enumerate(CHAINS):
    chain[:at] = CHAINS[0][:at]  # they share leading blocks


@dataclass
class Pool:
    """Blocks in a queue of those that are free, in the order in which they are taken; a block that is free
    may still have a hash, and several may have the same, of which the oldest is found."""

    capacity: int
    queue: list[int] = field(default_factory=list)
    hashes: dict[int, int] = field(default_factory=dict)
    cached: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = list(range(self.capacity))

    def take(self, removed: list[int]) -> int:
        block = self.queue.pop(0)
        key = self.hashes.pop(block, None)
        if key is not None:
            self.cached[key].remove(block)
            removed.append(key)
        return block

    def serve(self, chain: list[int], partial: bool) -> tuple[int, list[int]]:
        """Blocks that hit, and the hashes of blocks that were taken, in order."""
        limit = len(chain) if partial else len(chain) - 1
        hit = 0
        while hit < limit and self.cached.get(chain[hit]):
            hit += 1
        blocks = [self.cached[key][0] for key in chain[:hit]]
        for block in blocks:
            self.queue.remove(block)
        removed: list[int] = []
        blocks += [self.take(removed) for _ in range(len(chain) - hit + partial)]
        for key, block in zip(chain[hit:], blocks[hit:], strict=False):
            self.hashes[block] = key
            self.cached.setdefault(key, []).append(block)
        for block in reversed(blocks):
            if block in self.hashes:
                self.queue.append(block)
            else:
                self.queue.insert(0, block)
        return hit, removed


REQUESTS = st.lists(st.tuples(st.sampled_from(CHAINS), st.integers(1, 6), st.booleans()), max_size=60)


@given(requests=REQUESTS, capacity=st.integers(7, 20))
def test_hits_removed_blocks_and_copies_are_those_of_a_plain_block_pool(
    requests: list[tuple[list[int], int, bool]], capacity: int
) -> None:
    pool = Pool(capacity)
    rig = Rig(preset="vllm", tiers=[tier("gpu", capacity=capacity)])
    names: dict[int, int] = {}
    for number, (chain, blocks, partial) in enumerate(requests):
        since = rig.log.size
        limit = blocks if partial else blocks - 1
        hit = rig.stack.serve(keys(chain[:blocks]), request=number, limit=limit, partial=partial)
        events = np.frombuffer(rig.log.tobytes(), dtype=np.dtype(list(EVENT_FIELDS)))[since:]
        removed = []
        for event in events.tolist():
            row = dict(zip(events.dtype.names or (), event, strict=True))
            if EVENT_REASONS[row["reason"]] == "recomputed":
                names[row["key"]] = row["parent"]
            if EVENT_KINDS[row["kind"]] == "DELETE":
                removed.append(names.get(row["key"], row["key"]))
        assert (hit, removed) == pool.serve(chain[:blocks], partial)
        held = [names.get(key, key) for key in rig.tiers["gpu"].residents()]
        assert sorted(held) == sorted(pool.hashes.values())
        rig.tiers["gpu"].verify()
