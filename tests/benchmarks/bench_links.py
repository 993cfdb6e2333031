"""Transfers over shared links."""

from __future__ import annotations

import time

from benchmarks.streams import scaled

TRANSFERS = scaled(100_000)
WORKERS = 64
FOREVER_NS = 10**18


class Transfers:
    """Transfers of mixed sizes from their start to their end, by how they share: one after the other, 32 or all
    at once, or 64 workers with 16 each on lanes of their own to a store that they share."""

    params = (["fifo", "32 at once", "all at once", "64 lanes"],)
    param_names = ("sharing",)

    def setup(self, sharing):
        self.lanes = WORKERS if sharing == "64 lanes" else 1
        self.store = {"fifo": ("fifo", 0), "32 at once": ("fair", 32), "64 lanes": ("fair", 0)}.get(
            sharing, ("fair", 0)
        )

    def measure(self):
        from kvbench.serving.link import Link
        from kvbench.serving.links import Transfers

        lanes = [Link(f"lane {i}", 10**10, 10_000, "fair", 16) for i in range(self.lanes)]
        transfers = Transfers([Link("store", 8 * 10**10, 1_000_000, *self.store), *lanes])
        paths = [transfers.add_path([0, 1 + i] if self.lanes > 1 else [0]) for i in range(self.lanes)]
        began = time.perf_counter()
        for i in range(TRANSFERS):
            transfers.begin(paths[i % self.lanes], 1_000_000 + 7_919 * (i % 1_009), owner=i)
        ended = len(transfers.run_until(FOREVER_NS))
        return ended / (time.perf_counter() - began)

    def track_transfers_per_s(self, sharing):
        return max(self.measure() for _ in range(3))

    track_transfers_per_s.unit = "transfers/s"


class Alarms:
    """Alarms of a clock on which a thousand are set."""

    def setup(self):
        from kvbench.serving.clock import Clock

        self.clock = Clock()
        for i in range(1_000):
            self.clock.set_alarm(i * 7_919 % 1_000_003)

    def time_alarms(self):
        clock = self.clock
        for i in range(TRANSFERS):
            time_ns, *_ = clock.take_alarm()
            clock.set_alarm(time_ns + i * 7_919 % 1_000_003)
