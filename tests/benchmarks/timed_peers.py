"""Timed replay against the replay of NVIDIA Dynamo: the same trace, workers and formula of time, in turns.

    python tests/benchmarks/timed_peers.py                                   Mooncake's conversation, 4 workers
    python tests/benchmarks/timed_peers.py --peer-python ~/dynamo/bin/python  an environment that has ai-dynamo 1.4.2
    python tests/benchmarks/timed_peers.py --runs 5 --json

Both replay all answers of the trace with Dynamo's formula (``poly``) on GPUs of 3,000 blocks of 512 tokens. kvbench
reads an Arrow file that ``trace import`` made, Dynamo the JSON lines that it was made of. Dynamo has no router that
looks at prefixes alone: ``max-prefix`` stands beside its KV router, which weighs load, too. The peer is left out, with
the reason, where its Python has no ai-dynamo. Times are CPU seconds of the call, without imports, medians of the runs;
beside them is what wall clocks said.
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
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
TRACE = "traces/mooncake/conversation_trace.jsonl.gz"
BLOCKS, BLOCK_TOKENS = 3_000, 512
ROUTERS = {"max-prefix": "kv_router", "round-robin": "round_robin", "dynamo-kv": "kv_router"}
"""Ours, and the peer's that it stands beside."""

PEER = """
import json, sys, time
from dynamo._core import MockEngineArgs, run_mocker_trace_replay
trace, mode, workers, blocks, block_tokens = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
engine = MockEngineArgs(num_gpu_blocks=blocks, block_size=block_tokens)
wall, cpu = time.perf_counter(), time.process_time()
report = run_mocker_trace_replay(
    [trace], extra_engine_args=engine, num_workers=workers, router_mode=mode, trace_block_size=block_tokens
)
print(json.dumps({
    "cpu_s": time.process_time() - cpu,
    "wall_s": time.perf_counter() - wall,
    "requests": report["completed_requests"],
    "token_rate": report["first_admission_prefix_cache_reused_ratio"],
    "ttft_ms": report["mean_ttft_ms"],
    "tpot_ms": report["mean_tpot_ms"],
}))
"""


def peer_replay(python: str, trace: Path, mode: str, workers: int) -> dict[str, Any]:
    """One replay of Dynamo's, in a process of its own; logs cost time, so it is told to write none."""
    command = [python, "-c", PEER, str(trace), mode, *map(str, (workers, BLOCKS, BLOCK_TOKENS))]
    env = {**os.environ, "DYN_LOG": "error"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def own_replay(trace: Path, router: str, workers: int) -> dict[str, Any]:
    """The same of ours."""
    import kvbench

    registry = kvbench.load_registry(autoload=False)
    wall, cpu = time.perf_counter(), time.process_time()
    result = kvbench.replay(trace, capacity=BLOCKS, workers=workers, router=router, compute="poly", registry=registry)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    timed = result.summary["timed"]
    return {
        "cpu_s": cpu,
        "wall_s": wall,
        "requests": timed["requests"]["done"],
        "token_rate": result.rates["token"],
        "ttft_ms": timed["ttft_ns"]["mean"] / 1e6,
        "tpot_ms": timed["tpot_ns"]["mean"] / 1e6,
    }


def missing_peer(python: str) -> str | None:
    """Why the peer can't run; None if it can."""
    done = subprocess.run([python, "-c", "import dynamo._core"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{python} has no ai-dynamo ({done.stderr.strip().splitlines()[-1]})"


def measure(source: Path, python: str | None, workers: int, runs: int) -> dict[str, dict[str, Any]]:
    """A record for each router, all in turns, so that whatever else the machine does meets all."""
    from kvbench.trace.formats.mooncake import MooncakeFormat
    from kvbench.trace.importer import import_trace

    peers = sorted(set(ROUTERS.values())) if python is not None else []
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        arrow, lines = Path(folder) / "trace.arrow", Path(folder) / "trace.jsonl"
        import_trace(source, arrow, format=MooncakeFormat())
        with (gzip.open if source.suffix == ".gz" else open)(source, "rb") as packed, lines.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        own_replay(arrow, "round-robin", workers)  # imports happen here
        for _ in range(runs):
            for router in ROUTERS:
                seen.setdefault(("kvbench", router), []).append(own_replay(arrow, router, workers))
            for mode in peers:
                assert python is not None
                seen.setdefault(("peer", mode), []).append(peer_replay(python, lines, mode, workers))
    found = {each: summed_up(records) for each, records in seen.items()}
    return {
        router: {"kvbench": found["kvbench", router], "peer": found.get(("peer", mode)), "peer_router": mode}
        for router, mode in ROUTERS.items()
    }


def summed_up(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of several runs, and requests a CPU second."""
    found = {name: median(record[name] for record in records) for name in records[0]}
    return {**found, "requests_per_cpu_s": found["requests"] / max(found["cpu_s"], 1e-9)}


def lines_of(duels: dict[str, dict[str, Any]]) -> list[str]:
    """The table."""
    lines = []
    for router, duel in duels.items():
        own, peer = duel["kvbench"], duel["peer"]
        lines.append(f"kvbench {router:<12} {line(own)}")
        if peer is not None:
            ratios = (peer["cpu_s"] / own["cpu_s"], peer["wall_s"] / own["wall_s"])
            lines.append(f"Dynamo  {duel['peer_router']:<12} {line(peer)}")
            lines.append(f"{'':<20} ratio {ratios[0]:.1f} (CPU), {ratios[1]:.1f} (wall clock)")
    return lines


def line(found: dict[str, Any]) -> str:
    return (
        f"{found['cpu_s']:>6.3f} CPU s ({found['wall_s']:.2f} s)  {found['requests_per_cpu_s']:>8,.0f} requests/CPU s  "
        f"token rate {100 * found['token_rate']:.2f} %  mean TTFT {found['ttft_ms']:.0f} ms  "
        f"TPOT {found['tpot_ms']:.2f} ms"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(description="Measure timed replay beside Dynamo's.")
    parser.add_argument("--trace", type=Path, help="Mooncake trace (the conversation trace in --shared)")
    parser.add_argument("--shared", type=Path, default=TESTS.parent.parent / "shared", help="folder of real traces")
    parser.add_argument("--peer-python", default=sys.executable, help="Python that has ai-dynamo 1.4.2 (this one)")
    parser.add_argument("--workers", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    source = options.trace or options.shared / TRACE
    if not source.exists():
        print(f"there is no {source}: nothing to replay; give --trace", file=sys.stderr)
        return 0
    why = missing_peer(options.peer_python)
    if why is not None:
        print(f"Dynamo is left out: {why}", file=sys.stderr)
    duels = measure(source, None if why else options.peer_python, options.workers, options.runs)
    print(json.dumps(duels, indent=2) if options.json else "\n".join(lines_of(duels)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
