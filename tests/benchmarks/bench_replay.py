"""Whole replays through the public function: reading, checking, serving, summing up."""

from __future__ import annotations

import time

from benchmarks.streams import agents, chat, scaled, trace, zipf

OBJECTS = scaled(50_000)


def make_case(name: str):
    """The trace and the capacity in blocks of one stream."""
    if name == "chat":
        return chat(scaled(400)), scaled(3_000)
    if name == "agents":
        return trace(agents(scaled(2_000))), scaled(10_000)
    share = {"zipf-1": 0.01, "zipf-10": 0.1}[name]
    return trace(zipf(scaled(500_000), OBJECTS)), max(1, int(OBJECTS * share))


class Replay:
    """One worker, a policy, a stream."""

    params = (["lru", "fifo"], ["chat", "agents", "zipf-1", "zipf-10"])
    param_names = ("policy", "stream")

    def setup(self, policy, stream):
        from kvbench import replay

        self.replay = replay
        self.table, self.capacity = make_case(stream)

    def run(self, policy):
        return self.replay(self.table, policy=policy, capacity=self.capacity)

    def time_replay(self, policy, stream):
        self.run(policy)

    def peakmem_replay(self, policy, stream):
        self.run(policy)

    def track_blocks_per_s(self, policy, stream):
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            self.run(policy)
            best = min(best, time.perf_counter() - began)
        return len(self.table["block_ids"].combine_chunks().flatten()) / best

    track_blocks_per_s.unit = "blocks/s"

    def track_token_rate(self, policy, stream):
        return self.run(policy).rates["token"]

    track_token_rate.unit = "hit tokens / input tokens"


class Workers:
    """Eight workers behind a router."""

    params = ("round-robin", "random", "max-prefix")
    param_names = ("router",)

    def setup(self, router):
        from kvbench import replay

        self.replay = replay
        self.table, _ = make_case("agents")

    def time_replay(self, router):
        self.replay(self.table, workers=8, router=router, capacity=scaled(2_000))

    def track_token_rate(self, router):
        return self.replay(self.table, workers=8, router=router, capacity=scaled(2_000)).rates["token"]

    track_token_rate.unit = "hit tokens / input tokens"
