"""What a stack of three tiers costs beside one tier: the same blocks, one thread, in turns in one process.

    python tests/benchmarks/tier_stack.py                     both placements, five runs
    python tests/benchmarks/tier_stack.py --placements exclusive --runs 3 --blocks 10000000
    python tests/benchmarks/tier_stack.py --json

The stream is the WEKA sessions, where they are at hand, else a stream of agents. One tier is a plain
replay of LRU with 100,000 blocks; the stack has an equal first tier, and two below it of 300,000
and 1,000,000 blocks, LRU too. Both find the exact reason of every miss. The stack's first tier must
hit what the one tier hits (if not, the exit code is 1). The aim is that a block takes at most three
times as long in the stack. Times are CPU seconds; the median of the runs counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

TESTS = Path(__file__).resolve().parent.parent
if not __package__:
    sys.path.insert(0, str(TESTS))  # run as a command, the suite is not importable yet

from benchmarks.drive import replay, replay_stack  # noqa: E402
from benchmarks.peers import WEKA_FILE, weka  # noqa: E402
from benchmarks.streams import agents  # noqa: E402

if TYPE_CHECKING:
    from benchmarks.streams import Stream

CAPACITIES = (100_000, 300_000, 1_000_000)
PLACEMENTS = ("inclusive", "exclusive")
AGENT_REQUESTS = 20_000
AIM = 3.0


@dataclass
class Pair:
    """One tier and a stack over the same blocks: CPU seconds of each run, and the hits."""

    placement: str
    blocks: int
    one_hits: int = 0
    tier_hits: tuple[int, ...] = ()
    one: list[float] = field(default_factory=list)
    stack: list[float] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether the stack's first tier does what one tier does: it stores all that is asked for, too."""
        return self.tier_hits[0] == self.one_hits

    @property
    def ratio(self) -> float:
        return median(stack / one for stack, one in zip(self.stack, self.one, strict=True))

    def to_dict(self) -> dict[str, Any]:
        ns = {name: median(runs) / self.blocks * 1e9 for name, runs in (("one", self.one), ("stack", self.stack))}
        return {
            "placement": self.placement,
            "blocks": self.blocks,
            "one_hits": self.one_hits,
            "tier_hits": self.tier_hits,
            "agrees": self.agrees,
            "ns_per_block": ns,
            "cpu_s": {"one": median(self.one), "stack": median(self.stack)},
            "ratio": self.ratio,
        }


def measure(stream: Stream, placements: list[str], capacities: tuple[int, ...], runs: int) -> list[Pair]:
    """All in turns, so that whatever else the machine does meets all."""
    from kvbench.eviction.lru import Lru

    pairs = [Pair(placement, stream.blocks) for placement in placements]
    for _ in range(runs):
        counts, seconds = replay(stream, capacities[0], "tail-first", Lru, clock=time.process_time)
        for pair in pairs:
            pair.one_hits = counts["hit_blocks"]
            pair.one.append(seconds)
            found, took = replay_stack(stream, capacities, pair.placement, Lru, clock=time.process_time)
            pair.tier_hits = tuple(found[f"hit_{level}"] for level in range(len(capacities)))
            pair.stack.append(took)
    return pairs


def line(pair: Pair) -> str:
    """One line of the table."""
    record = pair.to_dict()
    ns, cpu = record["ns_per_block"], record["cpu_s"]
    hits = " + ".join(f"{count:,}" for count in pair.tier_hits)
    verdict = "as wanted" if pair.ratio <= AIM else f"more than {AIM:g}"
    return (
        f"{pair.placement:<10} one tier {ns['one']:>5.1f} ns/block ({cpu['one']:.2f} s)  stack "
        f"{ns['stack']:>5.1f} ns/block ({cpu['stack']:.2f} s)  ratio {pair.ratio:.2f} ({verdict})\n"
        f"{'':<10} hits {pair.one_hits:,} of {pair.blocks:,}; stack {hits}" + ("" if pair.agrees else "  HITS DIFFER")
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Measure a stack of three tiers beside one tier.")
    parser.add_argument("--placements", default=",".join(PLACEMENTS), help="comma-separated, of %(default)s")
    parser.add_argument("--runs", type=int, default=5, help="runs of each (5)")
    parser.add_argument("--blocks", type=int, help="the first so many blocks only")
    parser.add_argument("--shared", type=Path, default=TESTS.parent.parent / "shared", help="folder of real traces")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    placements = [name for name in options.placements.split(",") if name]
    if unknown := set(placements) - set(PLACEMENTS):
        parser.error(f"unknown placement {', '.join(sorted(unknown))}; known are {', '.join(PLACEMENTS)}")
    real = (options.shared / WEKA_FILE).exists()
    if not real:
        print(f"there is no {options.shared / WEKA_FILE}: a stream of agents instead", file=sys.stderr)
    stream = weka(options.shared) if real else agents(AGENT_REQUESTS)
    if options.blocks:
        stream = stream.head(options.blocks)
    pairs = measure(stream, placements, CAPACITIES, options.runs)
    if options.json:
        print(json.dumps([pair.to_dict() for pair in pairs], indent=2))
    else:
        print("\n".join(line(pair) for pair in pairs))
    return int(not all(pair.agrees for pair in pairs))


if __name__ == "__main__":
    raise SystemExit(main())
