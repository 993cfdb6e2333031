"""Sweeps: what a cell costs beside its replay, and what the curve saves."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

from benchmarks.streams import chat, scaled


class Sweep:
    """Forty cells over a chat trace, one after another in one process."""

    params = (["auto", "replay"],)
    param_names = ("method",)

    def setup(self, method):
        from kvbench import sweep

        self.sweep = sweep
        self.folder = tempfile.TemporaryDirectory()
        self.trace = str(Path(self.folder.name) / "trace.arrow")
        table = chat(scaled(400))
        with pa.ipc.new_file(self.trace, table.schema) as writer:
            writer.write_table(table)
        self.capacities = [max(1, scaled(100) * step) for step in range(1, 21)]

    def teardown(self, method):
        self.folder.cleanup()

    def time_sweep(self, method):
        self.sweep(self.trace, vary={"capacity": self.capacities, "policy": ["lru", "fifo"]}, method=method)
