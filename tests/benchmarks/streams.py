"""Block streams and traces for the benchmarks: the same ones for the same arguments."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SCALE = float(os.environ.get("KVBENCH_BENCHMARK_SCALE", "1"))
BLOCK_TOKENS = 64


def scaled(count: int) -> int:
    """``count``, made smaller by the scale of this run."""
    return max(1, int(count * SCALE))


@dataclass(frozen=True)
class Stream:
    """Requests as block ids: request i asks for ``ids[offsets[i]:offsets[i + 1]]``. Ids are dense."""

    ids: np.ndarray
    offsets: np.ndarray

    @property
    def requests(self) -> int:
        return len(self.offsets) - 1

    @property
    def blocks(self) -> int:
        return len(self.ids)

    def head(self, blocks: int) -> Stream:
        """The first requests, about so many blocks of them."""
        count = int(np.searchsorted(self.offsets, blocks, side="right")) - 1
        offsets = self.offsets[: max(count, 1) + 1]
        return Stream(np.ascontiguousarray(self.ids[: offsets[-1]]), offsets)


def zipf(requests: int, objects: int, exponent: float = 1.0) -> Stream:
    """One-block requests over ``objects`` blocks whose popularity follows Zipf's law."""
    rng = np.random.default_rng(1)
    shares = np.cumsum(np.arange(1, objects + 1, dtype=np.float64) ** -exponent)
    ranks = np.searchsorted(shares / shares[-1], rng.random(requests))
    return Stream(renumbered(ranks), np.arange(requests + 1, dtype=np.int64))


def agents(requests: int, sessions: int = 40, system_blocks: int = 50, turn_blocks: int = 12) -> Stream:
    """Coding agents: interleaved sessions, each request the whole talk so far and a little more.

    A session starts over, with a fresh talk after the shared beginning, once it is 1,500 blocks long.
    """
    rng = np.random.default_rng(2)
    fresh = system_blocks
    talks = [list(range(system_blocks)) for _ in range(sessions)]
    rows = []
    who = rng.integers(0, sessions, requests).tolist()
    how_much = rng.integers(1, 2 * turn_blocks, requests).tolist()
    for session, more in zip(who, how_much, strict=True):
        if len(talks[session]) > 1_500:
            talks[session] = list(range(system_blocks))
        talks[session].extend(range(fresh, fresh + more))
        fresh += more
        rows.append(np.array(talks[session], dtype=np.int64))
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Stream(renumbered(np.concatenate(rows)), offsets)


def renumbered(ids: np.ndarray) -> np.ndarray:
    """The ids as 0 … U-1 in the order of first appearance."""
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), dtype=np.uint64)
    numbers[np.argsort(first, kind="stable")] = np.arange(len(first), dtype=np.uint64)
    return numbers[inverse]


def trace(stream: Stream) -> pa.Table:
    """The stream as a trace of full blocks."""
    from kvbench.trace.schema import TraceFacts

    lengths = np.diff(stream.offsets)
    table = pa.table(
        {
            "arrival_ns": pa.array(np.arange(stream.requests, dtype=np.int64)),
            "input_tokens": pa.array((lengths * BLOCK_TOKENS).astype(np.uint32)),
            "block_ids": pa.ListArray.from_arrays(stream.offsets.astype(np.int32), pa.array(stream.ids)),
        }
    )
    return table.replace_schema_metadata(TraceFacts(block_tokens=BLOCK_TOKENS, dense=True).to_metadata())


def chat(sessions: int, ids: str = "block", block_tokens: int = BLOCK_TOKENS) -> pa.Table:
    """The chat workload as a trace."""
    from kvbench.trace.synth.chat import make_chat

    workload = make_chat(3, sessions=sessions, turns=8.0, ids=ids, block_tokens=block_tokens)
    table = pa.Table.from_batches(workload.batches(), workload.schema)
    return table.replace_schema_metadata(workload.facts.to_metadata())
