"""The WEKA conversations as one trace: 93.8 million block accesses from a run-length file of a megabyte."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from kvbench.trace.formats.weka import WekaFormat
from kvbench.trace.importer import import_trace
from kvbench.trace.reader import open_trace

SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)
"""An odd number: its multiples are different numbers all over the 64-bit range."""


def merged_trace(path: Path, *, dense: bool) -> pa.Table:
    """The main-agent requests of all conversations of ``weka_traces_710_rle.jsonl.gz``.

    All conversations start at 0 and are merged by time (stable). Ids are 0 … U-1 in first-seen
    order with ``dense``, and spread over 64 bits without.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "weka.arrow"
        import_trace(path, file, format=WekaFormat(subagents="drop"))
        trace = open_trace(file)
        columns = ["arrival_ns", "input_tokens", "block_ids"]
        # The copy outlives the file.
        table = pa.Table.from_batches([batch.select(columns) for batch in trace.batches()]).combine_chunks()
        facts = dataclasses.replace(trace.facts, dense=dense)
        lists = table["block_ids"].combine_chunks()
        ids = lists.flatten().to_numpy()
        ids = ids.copy() if dense else ids * SPREAD
        offsets = pa.array(lists.offsets.to_numpy() - lists.offsets[0].as_py())
        table = table.set_column(2, "block_ids", pa.ListArray.from_arrays(offsets, pa.array(ids)))
    return table.replace_schema_metadata(facts.to_metadata())
