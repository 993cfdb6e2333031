"""``kvbench trace import`` of many files and ``kvbench trace export``, end to end."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

import kvbench

if TYPE_CHECKING:
    from conftest import Cli

ROW = {"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [7, 2**64 - 1]}


def write_rows(path: Path, *rows: object) -> None:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def test_shards_go_in_and_one_file_comes_out(cli: Cli, tmp_path: Path) -> None:
    write_rows(tmp_path / "s-2.jsonl", ROW | {"timestamp": 5})
    write_rows(tmp_path / "s-1.jsonl", ROW)
    assert "give the output a name" in cli("trace", "import", "s-2.jsonl", "s-1.jsonl").err
    run = cli("trace", "import", "s-2.jsonl", "s-1.jsonl", "--shared-ids", "--keep-ids", "-o", "t.arrow")
    assert "s-2.jsonl and 1 more: mooncake (guessed), 2 rows of 2 files, 2 distinct blocks" in run.out
    run = cli("trace", "export", "t.arrow", "--to", "mooncake", "-o", "t.jsonl")
    assert (run.code, run.out) == (0, "wrote t.jsonl: 2 rows\n")
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [ROW, ROW | {"timestamp": 5}]


def test_rows_left_out_stand_in_the_report_and_in_the_file(cli: Cli, tmp_path: Path) -> None:
    write_rows(tmp_path / "s.jsonl", ROW, '{"timestamp": NaN, "input_length": 1}', ROW | {"timestamp": -5})
    run = cli("trace", "import", "s.jsonl")
    assert run.code == 2
    assert run.err.startswith("error: s.jsonl, row 2, line = ")
    assert run.err.endswith("; --on-error skip leaves bad rows out and counts them\n")
    assert not (tmp_path / "s.arrow").exists()
    run = cli("trace", "import", "s.jsonl", "--on-error", "skip", "-o", "s.parquet")
    assert "left out: 2 bad rows, for example:\n  s.jsonl, row 2, line = " in run.out
    said = json.loads(pq.read_schema(tmp_path / "s.parquet").metadata[b"kvbench.import"])
    assert (said["rows"], said["skipped"], len(said["skipped_examples"])) == (1, 2, 2)


def test_a_source_that_looks_like_another_format_is_told_so(cli: Cli, tmp_path: Path) -> None:
    write_rows(tmp_path / "s.jsonl", ROW)
    run = cli("trace", "import", "s.jsonl", "--format", "azure")
    assert run.err == "error: s.jsonl: is not CSV but JSON; it looks like --format mooncake\n"


def test_inspect_says_that_an_id_counts_for_each_model(cli: Cli, tmp_path: Path) -> None:
    """Two models with one id have two blocks, so that there are more than the import has counted ids."""
    (tmp_path / "s.csv").write_text("ts,tokens,ids,model\n0,512,7,a\n1,512,7,b\n")
    columns = "columns,arrival=ts:s,input=tokens,ids=ids,model=model,block_tokens=512"
    run = cli("trace", "import", "s.csv", "--format", columns)
    assert "1 distinct blocks" in run.out, run.err
    assert "2 distinct (an id counts once for each model)" in cli("trace", "inspect", "s.arrow").out


def test_negative_times_are_shifted_when_asked_to(cli: Cli, tmp_path: Path) -> None:
    """A18."""
    write_rows(tmp_path / "s.jsonl", ROW, ROW | {"timestamp": -5})
    assert "s.jsonl, row 2, timestamp = -5: must not be negative" in cli("trace", "import", "s.jsonl").err
    run = cli("trace", "import", "s.jsonl", "--normalise-time")
    assert "note: arrivals count from the earliest, -5 ms by the source's clock" in run.out
    batches = list(kvbench.open_trace(tmp_path / "s.arrow").batches())
    assert [time for batch in batches for time in batch.column("arrival_ns").to_pylist()] == [0, 5_000_000]


def test_the_events_of_a_replay_become_an_io_log(cli: Cli, tmp_path: Path) -> None:
    assert cli("trace", "make", "chat,sessions=12", "-o", "small.arrow").code == 0
    tiers = ("--tier", "gpu,capacity=100", "--tier", "cpu,capacity=1k", "--tier", "nvme,capacity=10k")
    assert cli("replay", "small.arrow", *tiers, "--events", "e.parquet").code == 0
    assert "give it with --block-bytes" in cli("trace", "export", "e.parquet", "--to", "mlperf-io", "-o", "io.csv").err
    run = cli("trace", "export", "e.parquet", "--to", "mlperf-io", "--block-bytes", "4096", "-o", "io.csv")
    assert run.code == 0, run.err
    events = pq.read_table(tmp_path / "e.parquet").to_pylist()
    moved = [event for event in events if event["kind"] in ("INSERT", "MOVE", "COPY")]
    with (tmp_path / "io.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert f"wrote io.csv: {len(lines):,} reads and writes" in run.out
    assert {line["Object_Size_Bytes"] for line in lines} == {"4096"}
    tiers_of = {"gpu": "Tier-0", "cpu": "Tier-1", "nvme": "Tier-2"}
    writes = Counter(line["Tier"] for line in lines if line["Operation"] == "Write")
    assert writes == Counter(tiers_of[event["tier"]] for event in moved)
    reads = Counter(line["Tier"] for line in lines if line["Operation"] == "Read")
    assert reads == Counter(tiers_of[event["source_tier"]] for event in moved if event["source_tier"])
    assert cli("trace", "import", "io.csv").out.startswith("io.csv: mlperf-io (guessed)")
