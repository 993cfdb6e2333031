"""The WEKA conversations as one trace: 93.8 million block accesses from a run-length file of a megabyte."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from pathlib import Path

BLOCK_TOKENS = 64


def merged_trace(path: Path, *, dense: bool) -> pa.Table:
    """The main-agent requests of all files of ``weka_traces_710_rle.jsonl.gz``.

    All conversations start at 0 and are merged by time (stable). Ids are made unique per file;
    with ``dense`` they are renumbered 0 … U-1 in first-seen order.
    """
    requests = []
    base = 0
    with gzip.open(path) as lines:
        for line in lines:
            mine = [request for request in json.loads(line)["requests"] if "hash_rle" in request]
            requests += [(r["t"], r["in"], [(base + start, count) for start, count in r["hash_rle"]]) for r in mine]
            base += max(start + count for r in mine for start, count in r["hash_rle"])
    requests.sort(key=lambda request: request[0])
    runs = np.array([run for _, _, runs in requests for run in runs], dtype=np.int64)
    lengths = [sum(count for _, count in runs) for _, _, runs in requests]
    ids = _expand(runs)
    if dense:
        ids = _number(ids)
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    table = pa.table(
        {
            "arrival_ns": pa.array([round(t * 1e9) for t, _, _ in requests], pa.int64()),
            "input_tokens": pa.array([tokens for _, tokens, _ in requests], pa.uint32()),
            "block_ids": pa.ListArray.from_arrays(offsets, pa.array(ids)),
        }
    )
    facts = TraceFacts(block_tokens=BLOCK_TOKENS, tail_rule="floor", dense=dense)
    return table.replace_schema_metadata(facts.to_metadata())


def _expand(runs: np.ndarray) -> np.ndarray:
    """start, start + 1, … start + count - 1 for each run, in one array."""
    starts, counts = runs[:, 0], runs[:, 1]
    ends = np.cumsum(counts)
    ids = np.arange(ends[-1])
    ids += np.repeat(starts - (ends - counts), counts)
    return ids.view(np.uint64)


def _number(ids: np.ndarray) -> np.ndarray:
    """Each id's position in the order of first appearance."""
    first = np.full(int(ids.max()) + 1, len(ids), dtype=np.int64)
    np.minimum.at(first, ids, np.arange(len(ids)))
    used = np.flatnonzero(first < len(ids))
    number = np.zeros(len(first), dtype=np.uint64)
    number[used[np.argsort(first[used])]] = np.arange(len(used), dtype=np.uint64)
    return number[ids]
