"""Timed replays through the public function: answers generated, four workers, one tier or two with links."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from benchmarks.streams import agents, chat, scaled, trace

OUTPUT_TOKENS = 200
AGENTS_PER_S = 2
SETTINGS = {"workers": 4, "router": "max-prefix", "compute": "poly"}
POOL = "scope=cluster,device=nvme-gen4,path=nic"


def conversation():
    """Chats in Mooncake's blocks of 512 tokens, whose arrivals and answers are those of the workload."""
    return chat(scaled(2_000), block_tokens=512), scaled(3_000)


def coding():
    """Long prompts of agents, evenly spread, with short answers."""
    table = trace(agents(scaled(2_000)))
    facts = table.schema.metadata
    arrivals = pa.array(np.arange(len(table), dtype=np.int64) * (10**9 // AGENTS_PER_S))
    answers = pa.array(np.full(len(table), OUTPUT_TOKENS, dtype=np.uint32))
    table = table.set_column(0, "arrival_ns", arrivals).append_column("output_tokens", answers)
    return table.replace_schema_metadata(facts), max(scaled(10_000), 2_000)


STREAMS = {"conversation": conversation, "agents": coding}


class Timed:
    """Four workers behind ``max-prefix``, with Dynamo's compute model."""

    params = tuple(STREAMS)
    param_names = ("stream",)

    def setup(self, stream):
        from kvbench import replay

        self.replay = replay
        self.table, self.capacity = STREAMS[stream]()

    def run(self):
        return self.replay(self.table, capacity=self.capacity, **SETTINGS)

    def time_replay(self, stream):
        self.run()

    def peakmem_replay(self, stream):
        self.run()

    def track_requests_per_s(self, stream):
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            self.run()
            best = min(best, time.perf_counter() - began)
        return len(self.table) / best

    track_requests_per_s.unit = "requests/s"

    def track_mean_ttft(self, stream):
        return self.run().summary["timed"]["ttft_ns"]["mean"] / 1e9

    track_mean_ttft.unit = "s of the simulated clock"


class TimedTiers(Timed):
    """The same with a tier below that all workers share, and a link on the way to it."""

    def run(self):
        tiers = [f"gpu,capacity={self.capacity}", f"pool,capacity={10 * self.capacity},{POOL}"]
        return self.replay(self.table, tiers=tiers, links=["nic,read_gb_per_s=25"], block_bytes="2MiB", **SETTINGS)
