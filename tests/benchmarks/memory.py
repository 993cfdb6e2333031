"""Peak memory of a replay against the length of its trace.

    python tests/benchmarks/memory.py [--rows 20000] [--times 10] [--json]

Replays one trace, and the same trace several times over with fresh ids each time, in processes of
their own, and compares their peak resident memory: with ``--seen off`` it should stay flat (semantics
§10.2), with the exact seen set it may grow by 16 bytes a distinct block, for dense and for any ids.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from kvbench.trace.schema import TraceFacts
from kvbench.trace.writer import TraceWriter

BLOCK_TOKENS = 64
BLOCKS = 400
SHARED = 300
"""Each request has 400 blocks, the first 300 of which the next request has, too."""
CAPACITY = 20_000

SCHEMA = pa.schema(
    [
        pa.field("arrival_ns", pa.int64(), nullable=False),
        pa.field("input_tokens", pa.uint32(), nullable=False),
        pa.field("block_ids", pa.list_(pa.uint64())),
    ]
)


def write_trace(path: Path, rows: int, times: int, *, dense: bool) -> int:
    """Write the trace ``times`` over, with fresh ids each time; returns its distinct blocks."""
    facts = TraceFacts(block_tokens=BLOCK_TOKENS, dense=dense)
    new = BLOCKS - SHARED
    per_pass = SHARED + rows * new
    spread = np.uint64(0x9E3779B97F4A7C15)  # odd, so multiplication is a bijection of 64-bit ids
    with TraceWriter(path, SCHEMA, facts, force=True) as writer:
        for turn in range(times):
            for start in range(0, rows, 500):
                count = min(500, rows - start)
                firsts = (np.arange(start, start + count) * new + turn * per_pass).astype(np.uint64)
                ids = (firsts[:, None] + np.arange(BLOCKS, dtype=np.uint64)).ravel()
                writer.write(
                    pa.record_batch(
                        [
                            pa.array(np.arange(count) + turn * rows + start),
                            pa.array(np.full(count, BLOCKS * BLOCK_TOKENS, dtype=np.uint32)),
                            pa.ListArray.from_arrays(
                                pa.array(np.arange(count + 1, dtype=np.int32) * BLOCKS),
                                pa.array(ids if dense else ids * spread),
                            ),
                        ],
                        schema=SCHEMA,
                    )
                )
    return times * per_pass


def peak_bytes(path: Path, seen: str) -> int:
    """Peak resident memory of one replay, in a process of its own."""
    code = (
        "import resource, sys\n"
        "from kvbench.cli import main\n"
        "try:\n"
        f"    main(['replay', {str(path)!r}, '--capacity', '{CAPACITY}', '--seen', {seen!r}])\n"
        "except SystemExit as done:\n"
        "    assert done.code == 0\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stderr.splitlines()[-1]) * (1 if sys.platform == "darwin" else 1024)


def measure(rows: int, times: int) -> list[dict[str, object]]:
    """One record for each kind of ids and seen set."""
    records: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        once, often = Path(folder, "once.arrow"), Path(folder, "often.arrow")
        for dense in (True, False):
            fewer, more = write_trace(once, rows, 1, dense=dense), write_trace(often, rows, times, dense=dense)
            for seen in ("off", "exact"):
                a, b = peak_bytes(once, seen), peak_bytes(often, seen)
                records.append(
                    {
                        "ids": "dense" if dense else "any",
                        "seen": seen,
                        "once_bytes": a,
                        "often_bytes": b,
                        "ratio": b / a,
                        "bytes_per_distinct_block": (b - a) / (more - fewer),
                    }
                )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    records = measure(given.rows, given.times)
    if given.json:
        print(json.dumps(records, indent=2))
        return
    print(f"{given.rows:,} requests once and {given.times} times over, fresh ids each time; peak resident memory")
    for record in records:
        print(
            f"{record['ids']:>5} ids, seen={record['seen']:<5}  once {record['once_bytes'] / 2**20:7.1f} MiB  "  # type: ignore[operator]
            f"often {record['often_bytes'] / 2**20:7.1f} MiB  ratio {record['ratio']:.3f}  "  # type: ignore[operator]
            f"{record['bytes_per_distinct_block']:6.2f} bytes a distinct block"
        )


if __name__ == "__main__":
    main()
