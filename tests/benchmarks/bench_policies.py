"""Policies in the compiled loop, block by block, and the exact curve."""

from __future__ import annotations

from benchmarks.drive import replay
from benchmarks.streams import agents, scaled, trace, zipf

OBJECTS = scaled(50_000)
POLICIES = ["lru", "clock", "sieve", "lfu", "arc", "s3-fifo", "2q", "slru", "lirs", "gdsf", "lru-k", "w-tinylfu"]


class Policies:
    """One policy over one stream, without reading or recording."""

    params = (POLICIES, ["agents", "zipf"])
    param_names = ("policy", "stream")

    def setup(self, policy, stream):
        from kvbench.plugins import load_registry
        from kvbench.specs import EvictionPolicySpec

        spec = load_registry(autoload=False).get(EvictionPolicySpec, policy)
        params = spec.parse_params({})
        self.make = lambda context: spec.load()(context, **params)
        self.stream = agents(scaled(2_000)) if stream == "agents" else zipf(scaled(500_000), OBJECTS)
        self.capacity = scaled(10_000) if stream == "agents" else max(1, OBJECTS // 10)

    def track_blocks_per_s(self, policy, stream):
        seconds = min(replay(self.stream, self.capacity, "access", self.make)[1] for _ in range(3))
        return self.stream.blocks / seconds

    track_blocks_per_s.unit = "blocks/s"


class Curve:
    """The exact LRU curve of a stream."""

    params = (["agents", "zipf"],)
    param_names = ("stream",)

    def setup(self, stream):
        from kvbench import curve

        self.curve = curve
        self.table = trace(agents(scaled(2_000)) if stream == "agents" else zipf(scaled(500_000), OBJECTS))

    def time_curve(self, stream):
        self.curve(self.table)

    def peakmem_curve(self, stream):
        self.curve(self.table)
