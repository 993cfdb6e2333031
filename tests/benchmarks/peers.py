"""kvbench against libCacheSim: LRU over the same blocks, one thread, in turns in one process.

    python tests/benchmarks/peers.py                            all streams, five runs
    python tests/benchmarks/peers.py --streams zipf-1 --runs 3  one stream
    python tests/benchmarks/peers.py --python-policy            the example policy in Python, too
    python tests/benchmarks/peers.py --json

libCacheSim (``pip install libcachesim``) replays a binary file in its own loop, the fastest way
it has. kvbench replays the blocks in batches in its compiled loop, says for each request what
hit and why the rest missed, and keeps the exact set of blocks ever seen. Both have their blocks
ready before the clock starts, which counts CPU seconds. kvbench runs three times: ``access``
works block by block as libCacheSim does and must count the same hits (if not, the exit code is
1), ``tail-first`` is how kvbench replays by default, and ``hashed`` is ``access`` over keys that
it does not know to be dense, as of a trace that was never imported.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

TESTS = Path(__file__).resolve().parent.parent
if not __package__:
    sys.path.insert(0, str(TESTS))  # run as a command, the suite is not importable yet

import numpy as np  # noqa: E402

from benchmarks.drive import replay  # noqa: E402
from benchmarks.streams import Stream, zipf  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

WEKA_FILE = Path("traces") / "kv-cache-tester" / "weka_traces_710_rle.jsonl.gz"
WEKA_CAPACITIES = (100_000, 1_000_000)
ZIPF_REQUESTS = 10_000_000
ZIPF_OBJECTS = 1_000_000
ZIPF_SHARES = {"zipf-1": 0.01, "zipf-10": 0.1}
STREAMS = ("weka", *ZIPF_SHARES)
OURS = {"access": ("access", True), "tail-first": ("tail-first", True), "hashed": ("access", False)}
"""kvbench's ways: sweep order, and whether it makes use of dense ids."""

PYTHON_BLOCKS = 5_000_000
PYTHON_POLICY = "two-touch"
PLUGIN = TESTS.parent / "plugins" / "kvbench-example-policy"
RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])


@dataclass
class Duel:
    """All runs over one stream at one capacity: hits, and CPU seconds of each run."""

    stream: str
    capacity: int
    blocks: int
    peer_hits: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    peer: list[float] = field(default_factory=list)
    ours: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in OURS})

    @property
    def hits_agree(self) -> bool:
        return self.peer_hits == self.hits["access"] == self.hits["hashed"]

    def speed(self, seconds: list[float]) -> float:
        """Median, in million blocks a second."""
        return self.blocks / median(seconds) / 1e6

    def ratios(self, way: str) -> tuple[float, float, float]:
        """How many times faster, run by run: median, smallest, largest."""
        found = [peer / mine for peer, mine in zip(self.peer, self.ours[way], strict=True)]
        return median(found), min(found), max(found)

    def to_dict(self) -> dict[str, Any]:
        speeds = {"libCacheSim": self.speed(self.peer), **{way: self.speed(mine) for way, mine in self.ours.items()}}
        ratios = {way: self.ratios(way) for way in OURS}
        return {**asdict(self), "hits_agree": self.hits_agree, "million_blocks_per_s": speeds, "ratios": ratios}


def peer_replay(file: Path, capacity: int, requests: int) -> tuple[int, float]:
    """LRU hits of libCacheSim over the file, and the CPU seconds it took."""
    import libcachesim

    ignore_sizes = libcachesim.ReaderInitParam(ignore_obj_size=True)
    reader = libcachesim.TraceReader(str(file), libcachesim.TraceType.ORACLE_GENERAL_TRACE, ignore_sizes)
    cache = libcachesim.LRU(capacity)
    began = time.process_time()
    miss_rate, _ = cache.process_trace(reader)
    seconds = time.process_time() - began
    return round((1 - miss_rate) * requests), seconds


def write_peer_file(stream: Stream, file: Path) -> None:
    """The stream in libCacheSim's binary format, one record a block."""
    with file.open("wb") as out:
        for start in range(0, stream.blocks, 1 << 20):
            ids = stream.ids[start : start + (1 << 20)]
            records = np.zeros(len(ids), dtype=RECORD)
            records["id"], records["size"], records["next"] = ids, 1, -1
            records.tofile(out)


def fight(name: str, stream: Stream, capacity: int, file: Path, runs: int) -> Duel:
    """Both in turns, so that whatever else the machine does meets both."""
    from kvbench.eviction.lru import Lru

    duel = Duel(name, capacity, stream.blocks)
    for _ in range(runs):
        duel.peer_hits, seconds = peer_replay(file, capacity, stream.blocks)
        duel.peer.append(seconds)
        for way, (order, dense) in OURS.items():
            counts, seconds = replay(stream, capacity, order, Lru, dense=dense, clock=time.process_time)
            duel.hits[way] = counts["resident_blocks"]
            duel.ours[way].append(seconds)
    return duel


def weka(shared: Path) -> Stream:
    """The merged WEKA conversations with dense ids."""
    import weka as conversations

    ids = conversations.merged_trace(shared / WEKA_FILE, dense=True)["block_ids"].combine_chunks()
    return Stream(ids.values.to_numpy(), ids.offsets.to_numpy().astype(np.int64))


def matches(streams: list[str], shared: Path, runs: int) -> Iterator[Duel]:
    """The duels over the named streams, one after another."""
    cases: list[tuple[str, Stream, tuple[int, ...]]] = []
    if "weka" in streams and not (shared / WEKA_FILE).exists():
        print(f"weka is left out: there is no {shared / WEKA_FILE}; say with --shared where it is", file=sys.stderr)
    elif "weka" in streams:
        cases.append(("weka", weka(shared), WEKA_CAPACITIES))
    if set(streams) & set(ZIPF_SHARES):
        stream = zipf(ZIPF_REQUESTS, ZIPF_OBJECTS)
        cases += [(name, stream, (int(ZIPF_OBJECTS * ZIPF_SHARES[name]),)) for name in streams if name in ZIPF_SHARES]
    for name, stream, capacities in cases:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "stream.oracleGeneral"
            write_peer_file(stream, file)
            for capacity in capacities:
                yield fight(name, stream, capacity, file, runs)


def python_policy(shared: Path, runs: int) -> dict[str, Any]:
    """Million blocks a second of the example policy over the first blocks of WEKA, else over a stream of agents."""
    from benchmarks.streams import agents

    sys.path.insert(0, str(PLUGIN))
    from kvbench_example_policy import TwoTouch

    stream = (weka(shared) if (shared / WEKA_FILE).exists() else agents(20_000)).head(PYTHON_BLOCKS)
    speeds = {}
    for capacity in (100_000, 1_000_000):
        seconds = [replay(stream, capacity, "tail-first", TwoTouch, clock=time.process_time)[1] for _ in range(runs)]
        speeds[capacity] = stream.blocks / median(seconds) / 1e6
    return {"policy": PYTHON_POLICY, "blocks": stream.blocks, "million_blocks_per_s": speeds}


def print_table(duels: list[Duel]) -> None:
    """A line for each duel; speeds are medians in million blocks a second."""
    ways = " ".join(f"{way:>10} {'ratio (min-max)':>18}" for way in OURS)
    print(f"{'stream':<8} {'capacity':>9} {'hits':>11} {'libCacheSim':>11} {ways}")
    for duel in duels:
        columns = [f"{duel.stream:<8} {duel.capacity:>9,} {duel.peer_hits:>11,} {duel.speed(duel.peer):>11.1f}"]
        for way, seconds in duel.ours.items():
            middle, low, high = duel.ratios(way)
            spread = f"{middle:.1f} ({low:.1f}-{high:.1f})"
            columns.append(f"{duel.speed(seconds):>10.1f} {spread:>18}")
        print(" ".join(columns))
        if not duel.hits_agree:
            print(f"  hits differ: libCacheSim counts {duel.peer_hits:,}, kvbench {duel.hits}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Measure kvbench against libCacheSim on the same blocks.")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side (5)")
    parser.add_argument("--streams", default=",".join(STREAMS), help="comma-separated, of %(default)s")
    parser.add_argument("--shared", type=Path, default=TESTS.parent.parent / "shared", help="folder of real traces")
    parser.add_argument("--python-policy", action="store_true", help="measure the example policy in Python, too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    streams = [name for name in options.streams.split(",") if name]
    if unknown := set(streams) - set(STREAMS):
        parser.error(f"unknown stream {', '.join(sorted(unknown))}; known are {', '.join(STREAMS)}")
    duels = list(matches(streams, options.shared, options.runs))
    example = python_policy(options.shared, options.runs) if options.python_policy else None
    if options.json:
        print(json.dumps({"duels": [duel.to_dict() for duel in duels], "python_policy": example}, indent=2))
    else:
        print_table(duels)
        if example is not None:
            for capacity, speed in example["million_blocks_per_s"].items():
                print(f"{PYTHON_POLICY} in Python at {capacity:,} blocks: {speed:.2f} M blocks/s")
    return 0 if all(duel.hits_agree for duel in duels) else 1


if __name__ == "__main__":
    raise SystemExit(main())
