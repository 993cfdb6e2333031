"""The exact curve against libCacheSim's exact stack distances: the same blocks, one thread, in turns.

    python tests/benchmarks/curve_peers.py --peer libCacheSim/_build/bin/distUtil
    python tests/benchmarks/curve_peers.py --streams zipf,zipf-hashed --runs 3
    python tests/benchmarks/curve_peers.py --json

The peer is ``distUtil``, which is built with libCacheSim (``cmake -DCMAKE_BUILD_TYPE=Release ..
&& make distUtil``; its Python package has no stack distances). It is looked for on the path where
``--peer`` does not name it; where there is none, ours is timed alone.

Streams are the first 10 million blocks of the WEKA sessions (where they are at hand), with dense
ids, and one-block Zipf(1.0) requests with dense ids and with ids that tell nothing (``hashed``).
Times are CPU seconds: of ours, one pass over blocks in memory and the figures at 200 capacities; of
the peer, the process, which reads a binary file and writes a distance a block. It works block by
block; so does a pass of ours whose hits must be equal at all 200 capacities (if not, the exit code
is 1). A replay of LRU at 100,000 blocks runs in the same turns, for what a curve costs beside it.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

TESTS = Path(__file__).resolve().parent.parent
if not __package__:
    sys.path.insert(0, str(TESTS))  # run as a command, the suite is not importable yet

import numpy as np  # noqa: E402

from benchmarks.drive import BATCH, replay  # noqa: E402
from benchmarks.peers import WEKA_FILE, weka, write_peer_file  # noqa: E402
from benchmarks.streams import Stream, zipf  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PEER = "distUtil"
STREAMS = ("weka", "zipf", "zipf-hashed")
WEKA_BLOCKS = 10_000_000
ZIPF_REQUESTS, ZIPF_OBJECTS = 3_000_000, 500_000
BLOCK_TOKENS = 64
CAPACITIES = np.unique(np.geomspace(1, 4_000_000, 200).astype(np.int64))
REPLAY_CAPACITY = 100_000
FIRST_ID = 2**63


@dataclass
class Duel:
    """One stream: CPU seconds of each run, and whether both found the same distances."""

    stream: str
    blocks: int
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    replay: list[float] = field(default_factory=list)
    same: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        def ratio(others: list[float], base: list[float]) -> float | None:
            return median(other / mine for other, mine in zip(others, base, strict=True)) if others else None

        speeds = {"ours": self.ours, "peer": self.peer, "replay": self.replay}
        return {
            "stream": self.stream,
            "blocks": self.blocks,
            "million_blocks_per_s": {name: self.blocks / median(runs) / 1e6 for name, runs in speeds.items() if runs},
            "peer_ratio": ratio(self.peer, self.ours),
            "replays": ratio(self.ours, self.replay),
            "same": self.same,
        }


def hashed(stream: Stream) -> Stream:
    """The stream with ids that are no small numbers: SplitMix64 of each."""
    ids = stream.ids + np.uint64(0x9E3779B97F4A7C15)
    ids = (ids ^ (ids >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    ids = (ids ^ (ids >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return Stream(ids ^ (ids >> np.uint64(31)), stream.offsets)


def curve(stream: Stream, dense: bool) -> tuple[np.ndarray, float]:
    """The FIGURES at CAPACITIES, and the CPU seconds they took."""
    from kvbench.replays.distances import FIGURES, ExactSums
    from kvbench.replays.onepass import OnePass

    lengths = np.diff(stream.offsets)
    cacheable, tokens = lengths.astype(np.int32), lengths * BLOCK_TOKENS
    arrivals = np.arange(stream.requests, dtype=np.int64)
    figures = np.zeros((len(CAPACITIES), len(FIGURES)))
    began = time.process_time()
    sums = ExactSums()
    onepass = OnePass(sums, block_tokens=BLOCK_TOKENS, dense=dense)
    for start in range(0, stream.requests, BATCH):
        stop = min(stream.requests, start + BATCH)
        offsets = stream.offsets[start : stop + 1]
        onepass.run(stream.ids, offsets, cacheable[start:stop], tokens[start:stop], arrivals[start:stop])
    sums.read(CAPACITIES, figures)
    return figures, time.process_time() - began


def resident_by_access(stream: Stream, dense: bool) -> list[int]:
    """Blocks found at each of CAPACITIES where each block is a request of its own."""
    from kvbench.replays.distances import FIGURES

    blocks = Stream(stream.ids, np.arange(stream.blocks + 1, dtype=np.int64))
    figures, _ = curve(blocks, dense)
    return [int(count) for count in figures[:, FIGURES.index("resident_blocks")]]


def peer_file(stream: Stream, file: Path) -> None:
    """The stream in libCacheSim's binary format, after one more id: the tool forgets what it meets first,
    as time 0 is how it remembers what it never met."""
    ids = np.concatenate([np.array([FIRST_ID], np.uint64), stream.ids])
    write_peer_file(Stream(ids, np.arange(len(ids) + 1, dtype=np.int64)), file)


def peer_distances(peer: str, file: Path) -> tuple[np.ndarray, float]:
    """The stack distance of each block, -1 where it is new, and the CPU seconds of the tool."""
    command = [peer, str(file), "oracleGeneral", "stack_dist", "binary", str(file)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return np.fromfile(f"{file}.STACK_DIST", dtype=np.int32)[1:], seconds


def hits_of(distances: np.ndarray) -> list[int]:
    """How many distances are below each of CAPACITIES."""
    found = np.sort(distances[distances >= 0])
    return [int(count) for count in np.searchsorted(found, CAPACITIES)]


def fight(name: str, stream: Stream, peer: str | None, runs: int) -> Duel:
    """All in turns, so that whatever else the machine does meets all."""
    from kvbench.eviction.lru import Lru

    duel = Duel(name, stream.blocks)
    dense = name != "zipf-hashed"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream"
        if peer:
            peer_file(stream, file)
        for _ in range(runs):
            if peer:
                distances, seconds = peer_distances(peer, file)
                duel.peer.append(seconds)
            duel.ours.append(curve(stream, dense)[1])
            _, seconds = replay(stream, REPLAY_CAPACITY, "tail-first", Lru, dense=dense, clock=time.process_time)
            duel.replay.append(seconds)
    if peer:
        duel.same = hits_of(distances) == resident_by_access(stream, dense)
    return duel


def streams(names: list[str], shared: Path) -> Iterator[tuple[str, Stream]]:
    """The named streams."""
    if "weka" in names and (shared / WEKA_FILE).exists():
        yield "weka", weka(shared).head(WEKA_BLOCKS)
    elif "weka" in names:
        print(f"weka is left out: there is no {shared / WEKA_FILE}; say with --shared where it is", file=sys.stderr)
    if "zipf" in names:
        yield "zipf", zipf(ZIPF_REQUESTS, ZIPF_OBJECTS)
    if "zipf-hashed" in names:
        yield "zipf-hashed", hashed(zipf(ZIPF_REQUESTS, ZIPF_OBJECTS))


def print_line(duel: Duel) -> None:
    """Speeds, medians in million blocks a second, and ratios, medians over runs."""
    record = duel.to_dict()
    speeds = record["million_blocks_per_s"]
    against = ""
    if duel.peer:
        equal = "equal" if duel.same else "DIFFERENT"
        against = f"   libCacheSim {speeds['peer']:>6.2f}  ratio {record['peer_ratio']:>5.1f}  hits {equal}"
    print(
        f"{duel.stream:<12} curve {speeds['ours']:>6.1f} M blocks/s = {record['replays']:.2f} replays "
        f"({speeds['replay']:.1f}){against}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Measure the exact curve against libCacheSim's stack distances.")
    parser.add_argument("--peer", default=shutil.which(PEER), help=f"libCacheSim's {PEER} (looked for on the path)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side (5)")
    parser.add_argument("--streams", default=",".join(STREAMS), help="comma-separated, of %(default)s")
    parser.add_argument("--shared", type=Path, default=TESTS.parent.parent / "shared", help="folder of real traces")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    names = [name for name in options.streams.split(",") if name]
    if unknown := set(names) - set(STREAMS):
        parser.error(f"unknown stream {', '.join(sorted(unknown))}; known are {', '.join(STREAMS)}")
    if options.peer is None:
        print(f"no {PEER} of libCacheSim on the path; ours is timed alone (--peer PATH names one)", file=sys.stderr)
    duels = []
    for name, stream in streams(names, options.shared):
        duels.append(fight(name, stream, options.peer, options.runs))
        if not options.json:
            print_line(duels[-1])
    if options.json:
        print(json.dumps([duel.to_dict() for duel in duels], indent=2))
    return 1 if any(duel.same is False for duel in duels) else 0


if __name__ == "__main__":
    raise SystemExit(main())
