"""Import of Mooncake JSON lines against parsing the same bytes with msgspec alone, and its peak memory.

    python tests/benchmarks/import_peers.py [--rows 200000] [--times 5] [--json]

Both run in turns in one process and the best of each counts; time is that of the processor, of one
thread. Peak memory is of imports of the trace and of four times the trace, in processes of their own:
in order of arrival, and shuffled, which must be sorted on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from kvbench.trace.formats.mooncake import MooncakeFormat
from kvbench.trace.importer import import_trace

SHARED, FRESH = 8, 16
"""A row has so many blocks that the rows before had, and so many that none had."""


KINDS = ("dense", "any", "turns")
"""Of traces: dense ids, any 64-bit ids, and dense ids in rows that are turns of sessions."""
SESSIONS = 5000


class Row(msgspec.Struct):
    timestamp: int
    input_length: int
    output_length: int
    hash_ids: list[int]
    session_id: str | None = None
    delay: float | None = None


def write_lines(path: Path, rows: int, *, kind: str = "dense", shuffled: bool = False, pool: int = 2**40) -> None:
    """A file of ``rows`` requests of one of the :data:`KINDS`; dense ids are 0, 1, 2, … in first-seen order.

    There are ``pool`` different ones at most, and rows come in any order if ``shuffled``.
    """
    times = np.arange(rows)
    if shuffled:
        np.random.default_rng(0).shuffle(times)
    spread = 0x9E3779B97F4A7C15 if kind == "any" else 1
    tokens = 512 * (SHARED + FRESH)
    with path.open("w") as file:
        for row, arrival in enumerate(times.tolist()):
            first = SHARED + row * FRESH % pool
            ids = [id * spread % 2**64 for id in (*range(SHARED), *range(first, first + FRESH))]
            line = {"timestamp": arrival, "input_length": tokens, "output_length": 300, "hash_ids": ids}
            if kind == "turns":
                line |= {"session_id": f"user-{row % SESSIONS}", "delay": 1.5}
            file.write(json.dumps(line) + "\n")


def parse_alone(path: Path) -> int:
    """What msgspec needs to make Python objects of all lines; returns their number."""
    decoder = msgspec.json.Decoder(Row)
    with path.open("rb") as file:
        return sum(1 for line in file if decoder.decode(line))


def best_s(call: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best


def peak_bytes(source: Path, output: Path) -> int:
    """Peak resident memory of an import, in a process of its own."""
    code = (
        "import resource, sys\n"
        "from kvbench.trace.formats.mooncake import MooncakeFormat\n"
        "from kvbench.trace.importer import import_trace\n"
        f"import_trace({str(source)!r}, {str(output)!r}, format=MooncakeFormat(), force=True)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)


def measure(rows: int, times: int) -> dict[str, dict[str, float]]:
    """Bytes a second by kind of trace, and peak bytes by order of rows."""
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "rows.jsonl"), Path(folder, "rows.arrow")

        def imported() -> None:
            import_trace(source, output, format=MooncakeFormat(), force=True)

        for kind in KINDS:
            write_lines(source, rows, kind=kind)
            size = os.path.getsize(source)
            alone, whole = float("inf"), float("inf")
            for _ in range(times):
                alone = min(alone, best_s(lambda: parse_alone(source), 1))
                whole = min(whole, best_s(imported, 1))
            figures[kind] = {"bytes": size, "msgspec": size / alone, "import": size / whole, "ratio": whole / alone}
        for order in ("sorted", "shuffled"):
            peaks = []
            for factor in (1, 4):
                write_lines(source, rows * factor, shuffled=order == "shuffled", pool=160_000)
                peaks.append(peak_bytes(source, output))
            figures[order] = {"once_bytes": peaks[0], "four_times_bytes": peaks[1]}
    return figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    figures = measure(given.rows, given.times)
    if given.json:
        print(json.dumps(figures, indent=2))
        return 0
    for kind in KINDS:
        of = figures[kind]
        print(
            f"{kind:>8}, {of['bytes'] / 1e6:,.0f} MB: msgspec alone {of['msgspec'] / 1e6:,.0f} MB/s, "
            f"import {of['import'] / 1e6:,.0f} MB/s, {of['ratio']:.2f} times as long"
        )
    for order in ("sorted", "shuffled"):
        once, four = (figures[order][name] / 2**20 for name in ("once_bytes", "four_times_bytes"))
        print(f"{order:>8} rows: peak {once:,.0f} MiB, of four times as many rows {four:,.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
