"""Hash algorithms against hashlib's SHA-256 in a loop, over the same NumPy buffer, in turns in one process.

    python tests/benchmarks/hashing_peers.py                        all algorithms, 256-token chunks
    python tests/benchmarks/hashing_peers.py --algorithms blake3,sha256 --block-tokens 16
    python tests/benchmarks/hashing_peers.py --json

hashlib is called in three ways. ``array``: slices of the array, each chained to the digest before it, as
one would write it. ``view``: the same over a memoryview, the fastest chain we know to write in Python.
``unchained``: slices of a memoryview alone, without a parent; this does less than a chain must.
kvbench's own SHA-256 must make the digests of the chains, and the command fails where it does not.
Times are CPU seconds, medians of runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

TESTS = Path(__file__).resolve().parent.parent
if not __package__:
    sys.path.insert(0, str(TESTS))  # run as a command, the suite is not importable yet

import numpy as np  # noqa: E402

from benchmarks.streams import scaled  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    Tokens = np.ndarray[Any, np.dtype[np.uint32]]

CHUNKS = 50_000


def by_array(tokens: Tokens, parent: bytes, block_tokens: int) -> list[bytes]:
    digests = []
    for at in range(0, len(tokens), block_tokens):
        state = hashlib.sha256(parent)
        state.update(tokens[at : at + block_tokens])
        parent = state.digest()
        digests.append(parent)
    return digests


def by_view(tokens: Tokens, parent: bytes, block_tokens: int) -> list[bytes]:
    view, step, digests = memoryview(tokens).cast("B"), 4 * block_tokens, []
    for at in range(0, len(view), step):
        parent = hashlib.sha256(parent + view[at : at + step]).digest()
        digests.append(parent)
    return digests


def unchained(tokens: Tokens, parent: bytes, block_tokens: int) -> list[bytes]:
    view, step = memoryview(tokens).cast("B"), 4 * block_tokens
    return [hashlib.sha256(view[at : at + step]).digest() for at in range(0, len(view), step)]


PEERS: dict[str, Callable[[Tokens, bytes, int], list[bytes]]] = {
    "array": by_array,
    "view": by_view,
    "unchained": unchained,
}


def timed(call: Callable[[], list[Any]]) -> tuple[list[Any], float]:
    """What a call returns, and the chunks a second it made."""
    began = time.process_time()
    found = call()
    return found, len(found) / max(time.process_time() - began, 1e-9)


def measure(names: list[str], block_tokens: int, runs: int) -> tuple[dict[str, float], bool]:
    """Chunks a second of each algorithm and each peer, and whether the digests of SHA-256 agree."""
    from kvbench.tokens import make_hash

    tokens = np.random.default_rng(1).integers(0, 2**32, scaled(CHUNKS) * block_tokens, np.uint32)
    made = {name: make_hash({"name": name, **({"seed": "0"} if "xxhash" in name else {})}) for name in names}
    own = make_hash("sha256")
    assert isinstance(own.root, bytes)
    root: bytes = own.root
    speeds: dict[str, list[float]] = {}
    agree = True
    for _ in range(runs):
        for name, hashing in made.items():
            _, speed = timed(lambda hashing=hashing: hashing.chain_blocks(hashing.root, tokens, block_tokens))
            speeds.setdefault(name, []).append(speed)
        expected = own.chain_blocks(root, tokens, block_tokens)
        for name, peer in PEERS.items():
            found, speed = timed(lambda peer=peer: peer(tokens, root, block_tokens))
            agree &= name == "unchained" or found == expected
            speeds.setdefault(f"hashlib {name}", []).append(speed)
    return {name: median(each) for name, each in speeds.items()}, agree


def table(speeds: dict[str, float]) -> str:
    """Chunks a second, and the ratio to each way of calling hashlib."""
    lines = [f"{'':<24} {'chunks/s':>12}  " + "  ".join(f"÷ {name:<9}" for name in PEERS)]
    for name, speed in speeds.items():
        ratios = "  ".join(f"{speed / speeds[f'hashlib {peer}']:<11.2f}" for peer in PEERS)
        lines.append(f"{name:<24} {speed:>12,.0f}  {ratios}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    from kvbench import HashAlgorithmSpec, load_registry

    known = load_registry(autoload=False).names(HashAlgorithmSpec)
    parser = argparse.ArgumentParser(description="Measure kvbench's hash algorithms against hashlib.")
    parser.add_argument("--algorithms", default=",".join(known), help="comma-separated (all)")
    parser.add_argument("--block-tokens", type=int, default=256, help="tokens of a chunk (256)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side (5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    names = options.algorithms.split(",")
    if unknown := set(names) - set(known):
        parser.error(f"unknown algorithm {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    speeds, agree = measure(names, options.block_tokens, options.runs)
    print(json.dumps({"chunks_per_s": speeds, "digests_agree": agree}, indent=2) if options.json else table(speeds))
    if not agree:
        print("digests differ: sha256 is not the chain that hashlib makes", file=sys.stderr)
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
