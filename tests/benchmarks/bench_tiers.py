"""Stacks of tiers in the compiled loop, and a whole replay through one."""

from __future__ import annotations

from benchmarks.drive import replay, replay_stack
from benchmarks.streams import agents, scaled, trace

CAPACITIES = (scaled(10_000), scaled(30_000), scaled(100_000))


class Stacks:
    """Three tiers, LRU, without reading or recording; and how much dearer than one tier they are."""

    params = (["inclusive", "exclusive"], ["dense", "hashed"])
    param_names = ("placement", "ids")

    def setup(self, placement, ids):
        from kvbench.eviction.lru import Lru

        self.lru, self.dense = Lru, ids == "dense"
        self.stream = agents(scaled(2_000))

    def seconds(self, placement):
        return min(replay_stack(self.stream, CAPACITIES, placement, self.lru, dense=self.dense)[1] for _ in range(3))

    def track_blocks_per_s(self, placement, ids):
        return self.stream.blocks / self.seconds(placement)

    track_blocks_per_s.unit = "blocks/s"

    def track_times_one_tier(self, placement, ids):
        one = min(replay(self.stream, CAPACITIES[0], "tail-first", self.lru, dense=self.dense)[1] for _ in range(3))
        return self.seconds(placement) / one

    track_times_one_tier.unit = "one-tier replays"


class TieredReplays:
    """Whole replays through the public function: eight workers, each with a GPU, a host tier for two, a pool."""

    params = ("inclusive", "exclusive")
    param_names = ("placement",)

    def setup(self, placement):
        from kvbench import replay

        self.replay = replay
        self.table = trace(agents(scaled(2_000)))

    def run(self, placement):
        gpu, host, pool = CAPACITIES
        return self.replay(
            self.table,
            workers=8,
            workers_per_host=2,
            router="round-robin",
            placement=placement,
            tiers=[
                {"name": "gpu", "capacity": gpu},
                {"name": "host", "capacity": host, "scope": "host"},
                {"name": "pool", "capacity": pool, "scope": "cluster"},
            ],
        )

    def time_replay(self, placement):
        self.run(placement)

    def peakmem_replay(self, placement):
        self.run(placement)

    def track_token_rate(self, placement):
        return self.run(placement).rates["token"]

    track_token_rate.unit = "hit tokens / input tokens"
