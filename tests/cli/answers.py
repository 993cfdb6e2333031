"""What tests of ``kvbench answer`` share: answers and replays as documents, and traces of a few prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kvbench.trace.schema import TraceFacts
from tests.cli.conftest import Cli

Document = dict[str, Any]
Prompt = Sequence[int]


def answered(cli: Cli, question: str, *arguments: str | Path) -> Document:
    """The document of an answer."""
    run = cli("answer", question, *arguments, "--json")
    assert run.code == 0, run.err
    document: Document = json.loads(run.out)
    return document


def replayed(cli: Cli, *arguments: str | Path) -> Document:
    """The summary of a replay."""
    run = cli("replay", *arguments, "--json")
    assert run.code == 0, run.err
    summary: Document = json.loads(run.out)["summary"]
    return summary


def refused(cli: Cli, question: str, *arguments: str | Path) -> str:
    """What is said of an answer that cannot be given."""
    run = cli("answer", question, *arguments)
    assert (run.code, run.out) == (2, "")
    return run.err


def write_prompts(
    cli: Cli,
    folder: Path,
    prompts: Sequence[Prompt],
    *,
    block_tokens: int = 16,
    at_ms: Callable[[int], int] = lambda row: 1000 * row,
) -> str:
    """A trace of these block ids, each at its time, as a file name in ``folder``."""
    rows = [
        {"timestamp": at_ms(at), "input_length": len(ids) * block_tokens, "output_length": 1, "hash_ids": list(ids)}
        for at, ids in enumerate(prompts)
    ]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = cli("trace", "import", "prompts.jsonl", "--block-tokens", str(block_tokens))
    assert run.code == 0, run.err
    return "prompts.arrow"


def write_trace(
    path: Path, rows: Sequence[Prompt], *, ids: str = "block_ids", columns: Any = None, **facts: Any
) -> Path:
    """A trace of a request a nanosecond with these ``rows`` of ids, and prompts of whole blocks; ``columns`` are added
    to that or take its place."""
    of_tokens = ids == "token_ids"
    table = {
        "arrival_ns": pa.array(range(len(rows)), pa.int64()),
        "input_tokens": pa.array([len(row) * (1 if of_tokens else facts["block_tokens"]) for row in rows], pa.uint32()),
        ids: pa.array(rows, pa.list_(pa.uint32() if of_tokens else pa.uint64())),
        **(columns or {}),
    }
    written = pa.table(table).replace_schema_metadata(TraceFacts(**facts).to_metadata())
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, written.schema) as writer:
        writer.write_table(written)
    return path
