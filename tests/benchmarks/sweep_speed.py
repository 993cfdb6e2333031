"""A sweep on two processes against one: 200 cells of Mooncake's conversation, in turns.

    python tests/benchmarks/sweep_speed.py              medians of three
    python tests/benchmarks/sweep_speed.py --runs 5 --json

The cells are what a study has: ten policies at ten capacities, three routers over two to eight workers, and timed
replays of four rates and five seeds. Neither Belady's bound nor the curve is in them: every cell is replayed. Times are
those of ``kvbench sweep --executor local,processes=N`` as a whole, with its start and the table that it writes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

TRACE = "traces/mooncake/conversation_trace.jsonl.gz"
PROCESSES = (1, 2)
POLICIES = ("arc", "fifo", "lfu", "lirs", "lru", "s3-fifo", "sieve", "slru", "two-touch", "w-tinylfu")

ROUTED = [
    {"workers": workers, "router": router, "capacity": capacity}
    for workers in (2, 4, 8)
    for router in ("max-prefix", "round-robin", "random")
    for capacity in (1_000, 2_000, 5_000, 10_000)
]
TIMED = [
    {"workers": 4, "capacity": 3_000, "compute": "poly", "arrivals": {"rate": rate}, "router": router, "seed": seed}
    for rate in (0.5, 1, 2, 4)
    for router in ("max-prefix", "random")
    for seed in range(8)
]
ORDERED = [{"policy": policy, "capacity": 1_000 * 2**step} for policy in POLICIES for step in range(10)]
CELLS = [*ORDERED, *ROUTED, *TIMED]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shared", type=Path, default=Path(__file__).resolve().parents[3] / "shared")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with gzip.open(chosen.shared / TRACE) as packed, (folder / "trace.jsonl").open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        kvbench(folder, "trace", "import", "trace.jsonl", "-o", "trace.arrow")
        (folder / "sweep.toml").write_text(as_toml(CELLS))
        seconds: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
        written = set()
        for _ in range(chosen.runs):
            for processes in PROCESSES:
                seconds[processes].append(sweep(folder, processes))
                written.add((folder / "sweep.parquet").read_bytes())
    assert len(written) == 1, "the same sweep gave other bytes"
    found = {f"{processes} processes": median(times) for processes, times in seconds.items()}
    ratio = median(two / one for one, two in zip(seconds[1], seconds[2], strict=True))
    if chosen.json:
        print(json.dumps({"cells": len(CELLS), "seconds": seconds, "ratio": ratio}))
        return
    print(f"{len(CELLS)} cells, {os.cpu_count()} cores; equal bytes")
    for name, time_s in found.items():
        print(f"{name}: {time_s:.2f} s")
    print(f"ratio: {ratio:.2f}")


def as_toml(cells: list[dict[str, object]]) -> str:
    """The combinations of a sweep file; every cell is replayed on its own."""
    import tomli_w

    return tomli_w.dumps({"cell": cells})


def sweep(folder: Path, processes: int) -> float:
    """Wall-clock seconds of the sweep on so many processes."""
    started = time.perf_counter()
    kvbench(
        folder, "sweep", "trace.arrow", "--config", "sweep.toml", "--executor", f"local,processes={processes}",
        "--method", "replay", "-o", "sweep.parquet", "--force",
    )  # fmt: skip
    return time.perf_counter() - started


def kvbench(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "kvbench", *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
