"""Every policy that libCacheSim has, too, against it: the same blocks, one thread, in turns in one process.

    python tests/benchmarks/policy_peers.py                       all policies, all streams
    python tests/benchmarks/policy_peers.py --policies sieve,arc --streams zipf-1% --runs 3
    python tests/benchmarks/policy_peers.py --json

Both work block by block (``--order access``). Policies without random numbers or a hash of their
own must count the same hits; the table says so for each. ``weka`` is the first 10 million blocks of
the WEKA sessions (where they are at hand); ``zipf-1%`` and ``zipf-10%`` are the same one-block Zipf(1.0)
requests with room for so many of the objects they are drawn from. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
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

from benchmarks.drive import replay  # noqa: E402
from benchmarks.peers import RECORD, WEKA_FILE, weka  # noqa: E402
from benchmarks.streams import Stream, zipf  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PEERS = {
    "lru": "LRU",
    "fifo": "FIFO",
    "clock": "Clock",
    "sieve": "Sieve",
    "lfu": "LFU",
    "lfu-da": "LFUDA",
    "arc": "ARC",
    "s3-fifo": "S3FIFO",
    "2q": "TwoQ",
    "slru": "SLRU",
    "mq": "MQ",
    "lirs": "LIRS",
    "w-tinylfu": "WTinyLFU",
    "gdsf": "GDSF",
    "lru-k": "LRUK",
    "lhd": "LHD",
    "hyperbolic": "Hyperbolic",
    "lecar": "LeCaR",
    "cacheus": "Cacheus",
    "random": "Random",
    "belady": "Belady",
}
"""kvbench's name → libCacheSim's class."""

WEKA_BLOCKS = 10_000_000
ZIPF_REQUESTS, ZIPF_OBJECTS = 3_000_000, 500_000
WEKA_CAPACITY = 100_000
ZIPF_SHARES = {"zipf-1%": 0.01, "zipf-10%": 0.1}
STREAMS = ("weka", *ZIPF_SHARES)
NEVER = 2**63 - 1


@dataclass
class Duel:
    """One policy on one stream: hits, and CPU seconds of each run."""

    stream: str
    policy: str
    capacity: int
    blocks: int
    hits: int = 0
    peer_hits: int = 0
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median(theirs / mine for theirs, mine in zip(self.peer, self.ours, strict=True))

    def to_dict(self) -> dict[str, Any]:
        speeds = {name: self.blocks / median(runs) / 1e6 for name, runs in (("ours", self.ours), ("peer", self.peer))}
        return {
            "stream": self.stream,
            "policy": self.policy,
            "capacity": self.capacity,
            "hits": self.hits,
            "peer_hits": self.peer_hits,
            "million_blocks_per_s": speeds["ours"],
            "peer_million_blocks_per_s": speeds["peer"],
            "ratio": self.ratio,
        }


def next_uses(stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """For each block its next use: as the number of the request, and as that of the access."""
    from kvbench.replays.belady import NextUses

    def found(offsets: np.ndarray) -> np.ndarray:
        uses = np.empty(stream.blocks, dtype=np.int32)
        NextUses().note(stream.ids, offsets, np.diff(offsets).astype(np.int32), uses)
        return uses

    return found(stream.offsets), found(np.arange(stream.blocks + 1, dtype=np.int64))


def write_peer_file(stream: Stream, by_access: np.ndarray, file: Path) -> None:
    """The stream in libCacheSim's binary format, with next uses."""
    records = np.zeros(stream.blocks, dtype=RECORD)
    records["id"], records["size"] = stream.ids, 1
    records["next"] = np.where(by_access == np.iinfo(np.int32).max, NEVER, by_access.astype(np.int64) + 1)
    records.tofile(file)


def peer_replay(name: str, file: Path, capacity: int, blocks: int) -> tuple[int, float]:
    """Hits of libCacheSim's policy over the file, and the CPU seconds it took."""
    import libcachesim

    ignore_sizes = libcachesim.ReaderInitParam(ignore_obj_size=True)
    reader = libcachesim.TraceReader(str(file), libcachesim.TraceType.ORACLE_GENERAL_TRACE, ignore_sizes)
    cache = getattr(libcachesim, PEERS[name])(capacity)
    began = time.process_time()
    miss_rate, _ = cache.process_trace(reader)
    return round((1 - miss_rate) * blocks), time.process_time() - began


def fight(duel: Duel, stream: Stream, file: Path, by_request: np.ndarray, runs: int) -> None:
    """Both in turns, so that whatever else the machine does meets both."""
    from kvbench.plugins import load_registry
    from kvbench.specs import EvictionPolicySpec

    spec = load_registry(autoload=False).get(EvictionPolicySpec, duel.policy)
    params = spec.parse_params({})
    next_use = by_request if spec.looks_ahead else None
    for _ in range(runs):
        duel.peer_hits, seconds = peer_replay(duel.policy, file, duel.capacity, stream.blocks)
        duel.peer.append(seconds)
        counts, seconds = replay(
            stream,
            duel.capacity,
            "access",
            lambda context: spec.load()(context, **params),
            next_use=next_use,
            clock=time.process_time,
        )
        duel.hits = counts["resident_blocks"]
        duel.ours.append(seconds)


def cases(names: list[str], shared: Path) -> Iterator[tuple[Stream, dict[str, int]]]:
    """Each stream that is needed, and the capacities to run it at by name."""
    if "weka" in names and not (shared / WEKA_FILE).exists():
        print(f"weka is left out: there is no {shared / WEKA_FILE}; say with --shared where it is", file=sys.stderr)
    elif "weka" in names:
        yield weka(shared).head(WEKA_BLOCKS), {"weka": WEKA_CAPACITY}
    capacities = {name: int(ZIPF_OBJECTS * ZIPF_SHARES[name]) for name in names if name in ZIPF_SHARES}
    if capacities:
        yield zipf(ZIPF_REQUESTS, ZIPF_OBJECTS), capacities


def matches(streams: list[str], policies: list[str], shared: Path, runs: int) -> Iterator[Duel]:
    """The duels of all policies over the named streams, one after another."""
    for stream, capacities in cases(streams, shared):
        by_request, by_access = next_uses(stream)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "stream.oracleGeneral"
            write_peer_file(stream, by_access, file)
            for name, capacity in capacities.items():
                for policy in policies:
                    duel = Duel(name, policy, capacity, stream.blocks)
                    fight(duel, stream, file, by_request, runs)
                    yield duel


def line(duel: Duel) -> str:
    """One line of the table; speeds are medians."""
    record = duel.to_dict()
    same = "equal" if duel.hits == duel.peer_hits else f"{duel.hits / max(duel.peer_hits, 1):.4f}"
    return (
        f"{duel.stream:<8} {duel.policy:<11} {record['million_blocks_per_s']:>7.1f} M blocks/s  libCacheSim "
        f"{record['peer_million_blocks_per_s']:>6.2f}  ratio {duel.ratio:>5.1f}  hits {same}"
    )


def chosen(parser: argparse.ArgumentParser, kind: str, given: str, known: list[str]) -> list[str]:
    """The names of a comma-separated option, all of which are known."""
    names = [name for name in given.split(",") if name]
    if unknown := set(names) - set(known):
        parser.error(f"unknown {kind} {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    return names


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Measure kvbench's policies against libCacheSim's.")
    parser.add_argument("--policies", default=",".join(PEERS), help="comma-separated (all)")
    parser.add_argument("--streams", default=",".join(STREAMS), help="comma-separated (weka, zipf-1%%, zipf-10%%)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side (3)")
    parser.add_argument("--shared", type=Path, default=TESTS.parent.parent / "shared", help="folder of real traces")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    policies = chosen(parser, "policy", options.policies, list(PEERS))
    streams = chosen(parser, "stream", options.streams, list(STREAMS))
    duels = []
    for duel in matches(streams, policies, options.shared, options.runs):
        duels.append(duel)
        if not options.json:
            print(line(duel), flush=True)
    if options.json:
        print(json.dumps([duel.to_dict() for duel in duels], indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
