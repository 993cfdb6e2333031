"""Two questions of speed: does a large cache cost more a block than a small one, and a policy in Python?

    python tests/benchmarks/scaling.py                                     LRU, 10 thousand to 10 million blocks
    python tests/benchmarks/scaling.py --policies lru,arc --sizes 10000,1000000
    python tests/benchmarks/scaling.py --python                            the example policy and libCacheSim's hooks
    python tests/benchmarks/scaling.py --json

**Resident blocks.** A tier of N blocks is filled, and then serves requests of 64 blocks, a chain each. All
streams put the same share of hits to every N:

``hit``    chains drawn evenly from the N blocks that are resident: all blocks hit.
``evict``  2N blocks, chain after chain in one shuffled order that repeats: under LRU and FIFO a block is gone
           when its turn comes again, so each is stored and evicts another.
``mixed``  chains drawn evenly from 2N blocks: under LRU and FIFO half of them hit.

Before the clock starts each stream runs over 2N blocks, so the tier is full and the set of keys ever seen
has its size. ``dense`` and ``hashed`` are the tables of ids 0 … U-1 and of any 64-bit keys. The aim is that a
block takes at most three times as long with 10 million resident as with 10 thousand.

**Policies in Python.** The example policy ``two-touch``, and LRU with an OrderedDict, beside the same LRU in the
hooks of libCacheSim's PluginCache, in turns over the same blocks: one-block Zipf(1.0) requests, where both LRUs
must count the same hits (if not, the exit code is 1), and as many blocks in requests for 64-block chains that
are as popular. kvbench calls a policy once for a request's run of blocks, libCacheSim once a block. The aim is a
million blocks a second and three times libCacheSim's speed.

Times are CPU seconds of one thread; the median of the runs counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

TESTS = Path(__file__).resolve().parent.parent
if not __package__:
    sys.path.insert(0, str(TESTS))  # run as a command, the suite is not importable yet

import numpy as np  # noqa: E402

from benchmarks.drive import BATCH, replay  # noqa: E402
from benchmarks.peers import PLUGIN, write_peer_file  # noqa: E402
from benchmarks.policy_peers import ZIPF_OBJECTS, ZIPF_REQUESTS, ZIPF_SHARES  # noqa: E402
from benchmarks.streams import Stream, zipf  # noqa: E402
from kvbench.eviction import PolicyContext, PythonPolicy  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
REQUEST_BLOCKS = 64
MEASURED_BLOCKS = 4_000_000
AIM = 3.0
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so multiplying with it gives each id a 64-bit key of its own."""


# -- resident blocks -----------------------------------------------------------------------------


def hit_chains(chains: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Numbers of the chains that are asked for, piece by piece: each once, to fill the tier, then even draws."""
    yield rng.permutation(chains)
    while True:
        yield rng.integers(0, chains, chains)


def evict_chains(chains: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Twice as many as fit, over and over."""
    order = rng.permutation(2 * chains)
    while True:
        yield order


def mixed_chains(chains: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Even draws from twice as many as fit."""
    while True:
        yield rng.integers(0, 2 * chains, chains)


STREAMS = {"hit": hit_chains, "evict": evict_chains, "mixed": mixed_chains}


class Requests:
    """A stream without end, as key arrays of so many requests."""

    def __init__(self, name: str, chains: int, *, dense: bool) -> None:
        self.pieces = STREAMS[name](chains, np.random.default_rng(5))
        self.rest = np.zeros(0, dtype=np.int64)
        self.dense = dense

    def take(self, requests: int) -> np.ndarray:
        """The keys of the next requests."""
        parts = [self.rest]
        while sum(map(len, parts)) < requests:
            parts.append(next(self.pieces))
        numbers = np.concatenate(parts)
        self.rest = numbers[requests:]
        firsts = numbers[:requests].astype(np.uint64) * np.uint64(REQUEST_BLOCKS)
        keys = (firsts[:, None] + np.arange(REQUEST_BLOCKS, dtype=np.uint64)).ravel()
        return keys if self.dense else keys * SPREAD


class Cache:
    """A tier of one policy, and how long it took."""

    def __init__(self, policy: Any, order: str, *, dense: bool) -> None:
        from kvbench.cache import Tier, make_seen
        from kvbench.replays.order import COUNTS, OrderReplay

        tier = Tier(policy, order=order, dense=dense)
        self.engine = OrderReplay([tier], seen=make_seen(dense, tier.direct_table))
        self.rows = np.zeros((BATCH, len(COUNTS)), dtype=np.int32)
        self.resident = COUNTS.index("resident_blocks")

    def serve(self, keys: np.ndarray) -> tuple[int, float]:
        """Blocks that hit, and CPU seconds."""
        offsets = np.arange(0, len(keys) + 1, REQUEST_BLOCKS, dtype=np.int64)
        cacheable = np.full(len(offsets) - 1, REQUEST_BLOCKS, dtype=np.int32)
        hits, seconds = 0, 0.0
        for start in range(0, len(cacheable), BATCH):
            some = cacheable[start : start + BATCH]
            rows = self.rows[: len(some)]
            began = time.process_time()
            self.engine.run(keys, offsets[start : start + len(some) + 1], some, rows)
            seconds += time.process_time() - began
            hits += int(rows[:, self.resident].sum())
        return hits, seconds


def measure(policy: str, stream: str, table: str, size: int, blocks: int, runs: int, order: str) -> dict[str, Any]:
    """Nanoseconds a block of one policy at one size, once the tier is full."""
    from kvbench.plugins import load_registry
    from kvbench.specs import EvictionPolicySpec

    spec = load_registry(autoload=False).get(EvictionPolicySpec, policy)
    chains = size // REQUEST_BLOCKS
    capacity = chains * REQUEST_BLOCKS
    requests = Requests(stream, chains, dense=table == "dense")
    cache = Cache(spec.load()(PolicyContext(capacity), **spec.parse_params({})), order, dense=table == "dense")
    cache.serve(requests.take(2 * chains))
    found = [cache.serve(requests.take(blocks // REQUEST_BLOCKS)) for _ in range(runs)]
    served = blocks // REQUEST_BLOCKS * REQUEST_BLOCKS
    return {
        "policy": policy,
        "stream": stream,
        "table": table,
        "resident_blocks": capacity,
        "hit_share": sum(hits for hits, _ in found) / (runs * served),
        "ns_per_block": median(seconds for _, seconds in found) / served * 1e9,
    }


def resident(policies: list[str], sizes: list[int], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A record for each policy, stream, table and size; ``ratio`` is to the first size."""
    for policy in policies:
        for stream in STREAMS:
            for table in ("dense", "hashed"):
                first = None
                for size in sizes:
                    record = measure(policy, stream, table, size, options.blocks, options.runs, options.order)
                    first = first or record["ns_per_block"]
                    yield {**record, "ratio": record["ns_per_block"] / first}


def resident_line(record: dict[str, Any]) -> str:
    """One line of the table of resident blocks."""
    return (
        f"{record['policy']:<8} {record['stream']:<6} {record['table']:<7} {record['resident_blocks']:>11,} resident  "
        f"hits {record['hit_share']:>7.2%}  {record['ns_per_block']:>7.1f} ns/block  ratio {record['ratio']:>5.2f}"
        + ("  above the aim" if record["ratio"] > AIM else "")
    )


# -- policies in Python --------------------------------------------------------------------------


class PythonLru(PythonPolicy):
    """LRU, as it is written in the hooks of libCacheSim below."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.slots: OrderedDict[int, None] = OrderedDict()

    def insert(self, slots: Any) -> None:
        for slot in slots:
            self.slots[slot] = None

    def touch(self, slots: Any) -> None:
        for slot in slots:
            self.slots.move_to_end(slot)

    def remove(self, slots: Any) -> None:
        for slot in slots:
            del self.slots[slot]

    def evict(self, n: int) -> list[int]:
        refs, victims = self.refs, []
        for slot in self.slots:
            if refs[slot] == 1:
                victims.append(slot)
                if len(victims) == n:
                    break
        self.remove(victims)
        return victims


def hooked_lru(capacity: int) -> Any:
    """libCacheSim's cache that asks Python: LRU over an OrderedDict of object ids."""
    import libcachesim

    def touch(objects: OrderedDict[int, None], request: Any) -> None:
        objects.move_to_end(request.obj_id)

    def store(objects: OrderedDict[int, None], request: Any) -> None:
        objects[request.obj_id] = None

    return libcachesim.PluginCache(
        capacity,
        cache_init_hook=lambda _params: OrderedDict(),
        cache_hit_hook=touch,
        cache_miss_hook=store,
        cache_eviction_hook=lambda objects, _request: objects.popitem(last=False)[0],
        cache_remove_hook=lambda objects, obj_id: objects.pop(obj_id, None),
        cache_free_hook=lambda objects: objects.clear(),
    )


def hooked_replay(file: Path, capacity: int, blocks: int) -> tuple[int, float]:
    """Hits of the hooked LRU over the file, and the CPU seconds it took."""
    import libcachesim

    ignore_sizes = libcachesim.ReaderInitParam(ignore_obj_size=True)
    reader = libcachesim.TraceReader(str(file), libcachesim.TraceType.ORACLE_GENERAL_TRACE, ignore_sizes)
    cache = hooked_lru(capacity)
    began = time.process_time()
    miss_rate, _ = cache.process_trace(reader)
    return round((1 - miss_rate) * blocks), time.process_time() - began


def chained(stream: Stream) -> Stream:
    """Each one-block request as one for a chain of 64 blocks."""
    firsts = stream.ids * np.uint64(REQUEST_BLOCKS)
    ids = (firsts[:, None] + np.arange(REQUEST_BLOCKS, dtype=np.uint64)).ravel()
    return Stream(ids, stream.offsets * REQUEST_BLOCKS)


def python_streams(requests: int) -> dict[str, Stream]:
    """About as many requests for about as many blocks, one by one and by 64."""
    chains = zipf(max(1, requests // REQUEST_BLOCKS), ZIPF_OBJECTS // REQUEST_BLOCKS)
    return {"zipf": zipf(requests, ZIPF_OBJECTS), "zipf-chains": chained(chains)}


def python_duels(requests: int, runs: int) -> Iterator[dict[str, Any]]:
    """A record for each stream, capacity and policy."""
    sys.path.insert(0, str(PLUGIN))
    from kvbench_example_policy import TwoTouch

    ours = {"two-touch": TwoTouch, "lru": PythonLru}
    for name, stream in python_streams(requests).items():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "stream.oracleGeneral"
            write_peer_file(stream, file)
            for share in ZIPF_SHARES.values():
                for record in python_duel(stream, file, int(ZIPF_OBJECTS * share), ours, runs):
                    yield {"stream": name, **record}


def python_duel(
    stream: Stream, file: Path, capacity: int, ours: dict[str, Callable[..., Any]], runs: int
) -> Iterator[dict[str, Any]]:
    """All in turns, so that whatever else the machine does meets all."""
    peer: list[float] = []
    mine: dict[str, list[float]] = {name: [] for name in ours}
    hits: dict[str, int] = {}
    for _ in range(runs):
        peer_hits, seconds = hooked_replay(file, capacity, stream.blocks)
        peer.append(seconds)
        for name, policy in ours.items():
            counts, seconds = replay(stream, capacity, "tail-first", policy, clock=time.process_time)
            hits[name] = counts["resident_blocks"]
            mine[name].append(seconds)
    for name in ours:
        yield {
            "policy": name,
            "capacity": capacity,
            "hits": hits[name],
            "peer_hits": peer_hits,
            "million_blocks_per_s": stream.blocks / median(mine[name]) / 1e6,
            "peer_million_blocks_per_s": stream.blocks / median(peer) / 1e6,
            "ratio": median(theirs / own for theirs, own in zip(peer, mine[name], strict=True)),
        }


def python_line(record: dict[str, Any]) -> str:
    """One line of the table of policies in Python."""
    return (
        f"{record['stream']:<11} {record['policy']:<9} {record['capacity']:>7,} resident  "
        f"{record['million_blocks_per_s']:>6.2f} M blocks/s  libCacheSim's hooks "
        f"{record['peer_million_blocks_per_s']:>5.2f}  ratio {record['ratio']:>5.2f}  "
        f"hits {record['hits']:,} and {record['peer_hits']:,}"
    )


def disagree(record: dict[str, Any]) -> bool:
    """Whether both LRUs saw the same and counted different hits."""
    same = record["stream"] == "zipf" and record["policy"] == "lru"
    return same and record["hits"] != record["peer_hits"]


# -- the command ---------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Measure large caches, and policies in Python.")
    parser.add_argument("--policies", default="lru", help="comma-separated (%(default)s)")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="resident blocks (%(default)s)")
    parser.add_argument("--blocks", type=int, default=MEASURED_BLOCKS, help="blocks of a run (%(default)s)")
    parser.add_argument("--order", default="tail-first", choices=("tail-first", "head-first", "access"))
    parser.add_argument("--python", action="store_true", help="measure policies in Python instead")
    parser.add_argument("--requests", type=int, default=ZIPF_REQUESTS, help="requests for --python (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.python:
        found, line = python_duels(options.requests, options.runs), python_line
    else:
        sizes = [int(size) for size in options.sizes.split(",")]
        found, line = resident(options.policies.split(","), sizes, options), resident_line
    records = []
    for record in found:
        records.append(record)
        if not options.json:
            print(line(record), flush=True)
    if options.json:
        print(json.dumps(records, indent=2))
    return int(any(map(disagree, records)))


if __name__ == "__main__":
    raise SystemExit(main())
