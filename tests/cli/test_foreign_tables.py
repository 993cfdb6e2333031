"""``kvbench trace import`` of logs without text, and of tables with a map, end to end."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import foreign

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Cli

MAP = "columns,arrival=start:iso,end=end:iso,input=usage.prompt,output=usage.answer,session=chat,ids=hashes,id_base=hex"

COLUMNS = "arrival_ns input_tokens output_tokens block_ids session_id turn think_time_ns"


def test_ones_own_log_is_imported_with_a_map_and_replayed(cli: Cli, tmp_path: Path) -> None:
    rows = (
        {
            "start": f"2026-01-01T00:00:0{turn * 3}Z",
            "end": f"2026-01-01T00:00:0{turn * 3 + 1}Z",
            "usage": {"prompt": 32 * (turn + 1), "answer": 5},
            "chat": "c",
            "hashes": [hashlib.sha256(bytes([block])).hexdigest() for block in range(turn + 1)],
        }
        for turn in range(3)
    )
    (tmp_path / "log.jsonl").write_bytes(foreign.jsonl(*rows))
    run = cli("trace", "import", "log.jsonl", "--format", f"{MAP},block_tokens=32")
    assert run.code == 0, run.err
    assert "log.jsonl: columns, 3 rows" in run.out
    report = json.loads(cli("trace", "inspect", "log.arrow", "--json").out)
    assert report["arrivals"]["span_ns"] == 6 * 10**9
    assert report["columns"] == COLUMNS.split()
    run = cli("replay", "log.arrow", "--compute", "fixed,prefill_ms_per_token=1,decode_ms=1", "--arrivals", "session")
    assert "50.00 %" in run.out, run.err


def test_a_wrong_map_is_one_clear_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("ts,prompt_tokens\n1,2\n")
    run = cli("trace", "import", "log.csv", "--format", "columns,arrival=ts:ms,input=prompt_token")
    assert run.code == 2
    assert run.err == (
        "error: log.csv: there is no column 'prompt_token'; did you mean 'prompt_tokens'? (known: prompt_tokens, ts)\n"
    )
    assert not (tmp_path / "log.arrow").exists()


def test_a_format_has_parameters_and_long_prompts_are_clipped(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "part1.csv").write_text(foreign.BURST)
    limit = ("--max-input-tokens", "420", "--too-long", "clip")
    run = cli("trace", "import", "part1.csv", "--format", "burstgpt,failed=drop", *limit)
    assert "1 requests failed (no response tokens) and were left out" in run.out
    assert "1 prompts were clipped to 420 tokens" in run.out
    run = cli("trace", "import", "part1.csv", *limit[2:])
    assert (run.code, run.err) == (2, "error: --too-long clip has no effect without --max-input-tokens\n")
