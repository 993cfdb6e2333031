"""The KVBM index by itself, and whole replays through routers with late and lossy views."""

from __future__ import annotations

from benchmarks.routing import make_cluster, measure_events, measure_scores
from benchmarks.streams import agents, scaled, trace

PROMPTS = scaled(4_000)


class Index:
    """Scoring prompts of 100 blocks on all workers, and applying their events."""

    params = (64, 1_000)
    param_names = ("workers",)

    def setup(self, workers):
        self.cluster = make_cluster(workers, PROMPTS)
        self.index, self.events_per_s = measure_events(self.cluster)

    def track_matched_blocks_per_s(self, workers):
        return max(measure_scores(self.cluster, self.index) for _ in range(5))

    track_matched_blocks_per_s.unit = "matched blocks/s"

    def track_events_per_s(self, workers):
        return max(self.events_per_s, *(measure_events(self.cluster)[1] for _ in range(3)))

    track_events_per_s.unit = "events/s"


class ManyWorkers:
    """How much dearer 1,000 workers are to score than 64."""

    def setup(self):
        self.clusters = [make_cluster(workers, PROMPTS) for workers in (64, 1_000)]
        self.indexes = [measure_events(cluster)[0] for cluster in self.clusters]

    def track_times_64_workers(self):
        few, many = (
            max(measure_scores(cluster, index) for _ in range(5))
            for cluster, index in zip(self.clusters, self.indexes, strict=True)
        )
        return few / many

    track_times_64_workers.unit = "times"


class RoutedReplays:
    """Whole replays of eight workers through the public function, by what the routers know."""

    params = (["events", "late", "approximate", "mirror"],)
    param_names = ("index",)

    def setup(self, index):
        from kvbench import replay

        self.replay = replay
        self.table = trace(agents(scaled(2_000)))
        self.settings = {
            "events": {},
            "late": {"event_channel": "coalesce=100,loss=0.01,duplication=0.01", "routers": 2},
            "approximate": {"index": "approximate,ttl=500"},
            "mirror": {"index": "approximate,capacity=10k"},
        }[index]

    def run(self, index):
        return self.replay(self.table, workers=8, capacity=scaled(10_000), **self.settings)

    def time_replay(self, index):
        self.run(index)

    def peakmem_replay(self, index):
        self.run(index)
