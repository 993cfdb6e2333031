"""Traces: opening, going through all rows with their checks, importing JSON lines."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.streams import agents, scaled, trace

ROWS = scaled(1_000)


class Read:
    """A trace of agents as Arrow IPC (memory-mapped) and as Parquet."""

    params = ("arrow", "parquet")
    param_names = ("file",)

    def setup(self, file):
        from kvbench import open_trace

        self.open_trace = open_trace
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / f"trace.{file}"
        table = trace(agents(ROWS))
        if file == "parquet":
            pq.write_table(table, self.path)
            return
        with pa.OSFile(str(self.path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    def teardown(self, file):
        self.folder.cleanup()

    def time_open(self, file):
        self.open_trace(self.path)

    def time_iterate(self, file):
        for _ in self.open_trace(self.path).batches():
            pass

    def peakmem_iterate(self, file):
        for _ in self.open_trace(self.path).batches():
            pass


class Import:
    """Mooncake JSON lines to Arrow, ids renumbered."""

    def setup(self):
        from kvbench.trace.formats.mooncake import MooncakeFormat
        from kvbench.trace.importer import import_trace

        self.import_trace, self.format = import_trace, MooncakeFormat()
        self.folder = tempfile.TemporaryDirectory()
        self.source = Path(self.folder.name) / "trace.jsonl"
        table = trace(agents(ROWS))
        with self.source.open("w") as lines:
            for at, ids in enumerate(table["block_ids"].to_pylist()):
                row = {"timestamp": at, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids}
                lines.write(json.dumps(row) + "\n")

    def teardown(self):
        self.folder.cleanup()

    def time_import(self):
        self.import_trace(self.source, self.source.with_suffix(".arrow"), format=self.format, force=True)

    def peakmem_import(self):
        self.time_import()
