"""How fast the KVBM index is: prompts scored on all workers, and events applied; one thread.

    python tests/benchmarks/routing.py               the table
    python tests/benchmarks/routing.py --runs 9 --json

A cluster holds prompts of 100 blocks that begin with one of a few system prompts of 20, each prompt at
four workers, and every worker asks for prompts that somebody holds. Aims: 5 million matched blocks a
second at 64 workers, 2 million events a second, and scoring 1,000 workers at most four times as dear
as 64. Peers: ai-dynamo 1.4.2's radix tree matches 3.1 million blocks a second and applies 0.2 million
events a second, measured on such a machine. Times are CPU seconds; the median of the runs counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
if not __package__:
    sys.path.insert(0, str(TESTS))  # run as a command, the suite is not importable yet

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

WORKERS = (64, 256, 1_000)
PROMPT_BLOCKS = 100
SYSTEM_BLOCKS = 20
SYSTEM_PROMPTS = 16
PROMPTS = 4_000
COPIES = 4
BATCH = 10  # prompts scored in one call, whose results stay in the processor's cache, as a router's do
SEED = 20_240_301
AIMS = {"matched_blocks_per_s": 5e6, "events_per_s": 2e6, "times_64_workers": 4.0}


@dataclass
class Cluster:
    """``events`` are packed, those of each prompt's copies one worker after the other; ``keys`` and ``offsets``
    are the prompts to be scored."""

    workers: int
    events: npt.NDArray[np.void]
    keys: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int64]


def make_cluster(workers: int, prompts: int = PROMPTS) -> Cluster:
    """A cluster and its prompts, in an order of their own."""
    from kvbench.cache.events import EVENT_FIELDS

    random = np.random.default_rng(SEED)
    own = PROMPT_BLOCKS - SYSTEM_BLOCKS
    keys = np.empty((prompts, PROMPT_BLOCKS), np.uint64)
    names = random.integers(0, 2**63, SYSTEM_PROMPTS * SYSTEM_BLOCKS + prompts * own, dtype=np.uint64)
    systems = names[: SYSTEM_PROMPTS * SYSTEM_BLOCKS].reshape(SYSTEM_PROMPTS, SYSTEM_BLOCKS)
    keys[:, :SYSTEM_BLOCKS] = systems[random.integers(0, SYSTEM_PROMPTS, prompts)]
    keys[:, SYSTEM_BLOCKS:] = names[SYSTEM_PROMPTS * SYSTEM_BLOCKS :].reshape(prompts, own)
    holders = random.integers(0, workers, (prompts, COPIES))
    events = np.zeros(prompts * COPIES * PROMPT_BLOCKS, dtype=np.dtype(list(EVENT_FIELDS)))
    events["key"] = np.repeat(keys, COPIES, axis=0).ravel()
    events["worker"] = events["store"] = np.repeat(holders.ravel(), PROMPT_BLOCKS)
    events["parent"][1:] = events["key"][:-1]
    events["has_parent"] = np.arange(len(events)) % PROMPT_BLOCKS > 0
    events["source"] = 255
    events["sequence"] = numbered(events["worker"], workers)
    asked = keys[random.permutation(prompts)].ravel()
    return Cluster(workers, events, asked, np.arange(0, len(asked) + 1, PROMPT_BLOCKS, dtype=np.int64))


def removals(cluster: Cluster) -> npt.NDArray[np.void]:
    """Events that undo the others, last block first, numbered on."""
    events = cluster.events[::-1].copy()
    events["kind"] = 1
    events["has_parent"] = 0
    sent = np.bincount(events["worker"], minlength=cluster.workers)
    events["sequence"] = sent[events["worker"]] + numbered(events["worker"], cluster.workers)
    return events


def numbered(workers: npt.NDArray[np.int32], count: int) -> npt.NDArray[np.int64]:
    """How many entries with the same worker stand before each."""
    order = np.argsort(workers, kind="stable")
    sent = np.bincount(workers, minlength=count)
    numbers = np.empty(len(workers), np.int64)
    numbers[order] = np.arange(len(workers)) - np.repeat(np.cumsum(sent) - sent, sent)
    return numbers


def measure_events(cluster: Cluster, clock: Callable[[], float] = time.process_time) -> tuple[Any, float]:
    """Apply all events to a fresh index, and undo them on another; returns the full index and events a second."""
    from kvbench.routing import EventFeed, KvbmIndex

    stored, removed = cluster.events.tobytes(), removals(cluster).tobytes()
    full, emptied = KvbmIndex(cluster.workers), KvbmIndex(cluster.workers)
    EventFeed(full).receive(stored, 0)
    feed = EventFeed(emptied)
    started = clock()
    feed.receive(stored, 0)
    feed.receive(removed, 0)
    took = clock() - started
    if emptied.held or feed.applied != 2 * len(cluster.events):
        raise AssertionError("the events do not undo each other")
    return full, 2 * len(cluster.events) / took


def measure_scores(cluster: Cluster, index: Any, clock: Callable[[], float] = time.process_time) -> float:
    """Matched blocks a second over all prompts."""
    overlaps = np.zeros((BATCH, cluster.workers), np.int32)
    matched, prompts = 0, len(cluster.offsets) - 1
    started = clock()
    for first in range(0, prompts, BATCH):
        batch = cluster.offsets[first : first + BATCH + 1]
        matched += index.score_batch(cluster.keys, batch, overlaps[: len(batch) - 1])
    took = clock() - started
    if matched != len(cluster.keys):
        raise AssertionError(f"{matched:,} of {len(cluster.keys):,} blocks matched; somebody holds each of them")
    return float(matched / took)


def measure(runs: int, prompts: int = PROMPTS) -> list[dict[str, float]]:
    """A record for each number of workers."""
    records: list[dict[str, float]] = []
    for workers in WORKERS:
        cluster = make_cluster(workers, prompts)
        index, events = None, []
        for _ in range(runs):
            index, rate = measure_events(cluster)
            events.append(rate)
        scores = [measure_scores(cluster, index) for _ in range(runs + 1)][1:]  # the first one meets cold memory
        record = {"workers": workers, "matched_blocks_per_s": median(scores), "events_per_s": median(events)}
        first = records[0]["matched_blocks_per_s"] if records else record["matched_blocks_per_s"]
        records.append({**record, "times_64_workers": first / record["matched_blocks_per_s"]})
    return records


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code: 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description="Measure the KVBM index.")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (5)")
    parser.add_argument("--prompts", type=int, default=PROMPTS, help=f"prompts that the cluster holds ({PROMPTS:,})")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    records = measure(options.runs, options.prompts)
    if options.json:
        print(json.dumps(records, indent=2))
    else:
        for record in records:
            print(
                f"{record['workers']:>6,} workers   {record['matched_blocks_per_s'] / 1e6:>6.1f} M matched blocks/s   "
                f"{record['events_per_s'] / 1e6:>5.1f} M events/s   {record['times_64_workers']:.2f} times 64 workers"
            )
    reached = (
        records[0]["matched_blocks_per_s"] >= AIMS["matched_blocks_per_s"]
        and min(record["events_per_s"] for record in records) >= AIMS["events_per_s"]
        and records[-1]["times_64_workers"] <= AIMS["times_64_workers"]
    )
    return int(not reached)


if __name__ == "__main__":
    raise SystemExit(main())
