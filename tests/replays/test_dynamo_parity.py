"""Reuse of Dynamo's replay on Mooncake's conversation trace (routers-and-timing.md 6.H), and of the real one."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import kvbench

DYNAMO = {1_000: 12_988, 3_000: 19_396, 10_000: 62_000, 30_000: 95_335, 100_000: 104_926, 200_000: 105_592}
"""Blocks of the GPU, and blocks that Dynamo 1.4.2 hit: one worker, block 512, hardly any overlap of requests."""

MODEL = {1_000: 12_988, 3_000: 19_398, 10_000: 62_001, 30_000: 95_336, 100_000: 104_926, 200_000: 105_592}
"""Blocks that prefix LRU hits if only full blocks are cached and one slot is kept for the tail."""


def hits(trace: Path, blocks: int) -> int:
    summary = kvbench.replay(trace, capacity=blocks - 1, tails="drop", belady="off").summary
    found: int = summary["blocks"]["hit"]
    return found


@pytest.mark.parametrize("blocks", DYNAMO)
def test_reuse_is_that_of_dynamo_to_two_blocks(mooncake: Any, blocks: int) -> None:
    found = hits(mooncake("conversation"), blocks)
    assert found == MODEL[blocks]
    assert abs(found - DYNAMO[blocks]) <= 2


REPLAY = """
import json, sys
from dynamo._core import MockEngineArgs, run_mocker_trace_replay
ratios = {}
for blocks in map(int, sys.argv[2:]):
    engine = MockEngineArgs(num_gpu_blocks=blocks, block_size=512)
    report = run_mocker_trace_replay(
        [sys.argv[1]], extra_engine_args=engine, arrival_speedup_ratio=0.2, trace_block_size=512
    )
    ratios[blocks] = report["prefix_cache_reused_ratio"] * report["total_input_tokens"] / 512
print(json.dumps(ratios))
"""


def test_reuse_is_that_of_the_real_dynamo(shared: Path, mooncake: Any, tmp_path: Path) -> None:
    """The wheel ai-dynamo-runtime 1.4.2, where it is installed; it needs no GPU."""
    if find_spec("dynamo") is None or find_spec("dynamo._core") is None:
        pytest.skip("needs the package ai-dynamo-runtime (1.4.2)")
    file = tmp_path / "trace.jsonl"
    with gzip.open(shared / "traces/mooncake/conversation_trace.jsonl.gz", "rt") as source, file.open("w") as target:
        # Answers of one token: requests hardly overlap, so that the order of service is that of the file.
        target.writelines(json.dumps({**json.loads(line), "output_length": 1}) + "\n" for line in source)
    command = [sys.executable, "-c", REPLAY, str(file), *map(str, DYNAMO)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for blocks, reused in json.loads(done.stdout.splitlines()[-1]).items():
        assert hits(mooncake("conversation"), int(blocks)) == pytest.approx(reused, abs=2)
