"""Writes the sessions of README.md that compare runs; they leave their files in a folder of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from readme import ROOT, run

REPLAY = "kvbench replay traces/chat.arrow --workers 2 --block-bytes 2MiB --tier gpu,capacity=500"


def session(*commands: str) -> None:
    """Print commands, and what those print that are no replay."""
    print("```console")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "traces").symlink_to(ROOT / "traces")
        for command in commands:
            printed = run(command, Path(folder))
            print(f"$ {command}")
            print("…" if command.startswith("kvbench replay") else printed)
    print("```")


def runs() -> None:
    """Compare a run with one of a smaller tier."""
    timed = f"{REPLAY} --compute fixed,prefill_ms_per_token=0.1,decode_ms=20"
    session(
        f"{timed} --tier cpu,capacity=2k -o before.parquet",
        f"{timed} --tier cpu,capacity=1k -o after.parquet",
        "kvbench compare before.parquet after.parquet --fail-if token_rate:-1% --fail-if ttft_p99:+20%",
    )


def measured() -> None:
    """Compare a run with one by another compute model, which stands in for an engine."""
    session(
        "kvbench replay traces/chat.arrow --capacity 2k --compute poly -o engine.parquet",
        "kvbench replay traces/chat.arrow --capacity 2k --model Llama-3.1-70B --tp 8 --compute roofline -o run.parquet",
        'kvbench compare run.parquet --measured engine.parquet --engine "poly, for an engine" -o pairs.csv',
    )
