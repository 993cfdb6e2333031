"""``kvbench trace`` end to end."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from conftest import Cli


def test_sample_is_made_by_the_command_its_readme_names(cli: Cli, tmp_path: Path, sample: Path) -> None:
    readme = (sample.parent / "README.md").read_text()
    command = readme.split("`kvbench ")[1].split("`")[0].split()
    assert cli(*command[:-1], "again.arrow").code == 0
    with pa.memory_map(str(sample)) as ours, pa.memory_map(str(tmp_path / "again.arrow")) as again:
        assert pa.ipc.open_file(ours).read_all().equals(pa.ipc.open_file(again).read_all(), check_metadata=True)


def test_make_refuses_an_unknown_workload_and_a_wrong_parameter(cli: Cli, tmp_path: Path) -> None:
    assert "did you mean 'chat'" in cli("trace", "make", "chta", "-o", "x.arrow").err
    assert "sessions" in cli("trace", "make", "chat,sessions=0", "-o", "x.arrow").err
    assert "did you mean 'sessions'" in cli("trace", "make", "chat,sesions=9", "-o", "x.arrow").err
    assert list(tmp_path.iterdir()) == []


def test_import_guesses_the_format_and_names_its_output(cli: Cli, tmp_path: Path) -> None:
    rows = [{"timestamp": t, "input_length": 700, "output_length": 1, "hash_ids": [7, t + 100]} for t in range(3)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = cli("trace", "import", "mine.jsonl")
    assert run.code == 0, run.err
    assert "mooncake (guessed), 3 rows, 4 distinct blocks" in run.out
    assert "wrote mine.arrow" in run.out
    trace = kvbench.open_trace(tmp_path / "mine.arrow")
    assert [batch.column("block_ids").to_pylist() for batch in trace.batches()] == [[[0, 1], [0, 2], [0, 3]]]


@pytest.mark.parametrize("options", [[], ["--format", "mooncake"]], ids=["guessed", "named"])
def test_import_from_a_pipe_loses_no_row(tmp_path: Path, options: list[str]) -> None:
    rows = [{"timestamp": t, "input_length": 700, "hash_ids": [7, t + 100]} for t in range(5_000)]
    source = tmp_path / "mine.jsonl.gz"
    source.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    assert source.stat().st_size > 10_000
    imported = f"{sys.executable} -m kvbench trace import {' '.join(options)} --on-error skip -o"
    for name, command in {
        "pipe": f"cat mine.jsonl.gz | {imported} pipe.arrow /dev/stdin",
        "substitution": f"{imported} substitution.arrow <(zcat mine.jsonl.gz)",
    }.items():
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "5,000 rows, 5,001 distinct blocks" in done.stdout
        assert "left out" not in done.stdout
        assert sum(batch.num_rows for batch in kvbench.open_trace(tmp_path / f"{name}.arrow").batches()) == 5_000


def test_objects_that_nothing_keeps_are_said_to_need_tails(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "disk.csv").write_text("".join(f"{time},7,512\n" for time in range(3)))
    columns = "libcachesim-csv,time_col=1,id_col=2,size_col=3,time_unit=s,header=false"
    assert "replay with --tails keep" in cli("trace", "import", "disk.csv", "--format", columns).out
    assert "give --tails keep to cache them" in cli("replay", "disk.arrow").out
    kept = json.loads(cli("replay", "disk.arrow", "--tails", "keep", "--json").out)
    assert kept["summary"]["rates"]["token"] == pytest.approx(2 / 3)


def test_a_source_with_dates_is_told_when_it_began(cli: Cli, tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:47,10,1\n2023-11-16 18:15:46.5,10,1\n"
    (tmp_path / "log.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    out = cli("trace", "import", "log.csv").out
    assert "note: arrivals count from the earliest, 2023-11-16 18:15:46 UTC\n" in out
    assert "it went back once in the source\n" in out


def test_inspect_counts_rows_as_the_file_does(cli: Cli, tmp_path: Path) -> None:
    """Rows without a number of output tokens and rows that are left out shift no row number."""
    table = pa.table(
        {
            "arrival_ns": [0, 1, -5, 7, 7, 7, 7, 9],
            "input_tokens": pa.array([32, 32, 32, 32, 40, 32, 32, 32], pa.uint32()),
            "output_tokens": pa.array([None, None, 0, None, 5, 0, 0, None], pa.uint32()),
            "block_ids": pa.array(
                [[1, 2], [1, 3], [1, 2], [1, 3], [1, 3, 4], [2, 1], [1, 2], [1, 4]], pa.list_(pa.uint64())
            ),
        }
    ).replace_schema_metadata(TraceFacts(block_tokens=16).to_metadata())
    pq.write_table(table, tmp_path / "odd.parquet")
    report = json.loads(cli("trace", "inspect", "odd.parquet", "--on-error", "skip", "--json").out)
    ties, silent, parents, sizes = report["remarks"]
    assert "3 of 6 neighbouring rows (50%) arrive at the same time, row 5 first" in ties
    assert silent == "2 rows have no output tokens, row 6 first"
    assert "(row 6 first)" in parents
    assert "(row 8 first)" in sizes
    assert report["rejected"] == 1


def test_inspect_says_which_rows_it_left_out(cli: Cli, tmp_path: Path) -> None:
    table = pa.table({"arrival_ns": [0, -5, 7], "input_tokens": pa.array([1, 1, 1], pa.uint32())})
    pq.write_table(table, tmp_path / "[odd].parquet")
    assert cli("trace", "inspect", "[odd].parquet").code == 2
    run = cli("trace", "inspect", "[odd].parquet", "--on-error", "skip")
    assert run.out.startswith("[odd].parquet · 2 requests")
    assert "rejected: 1 rows, for example:\n  [odd].parquet, row 2, arrival_ns = -5: must not be negative" in run.out


def test_inspect_says_what_reuse_there_is_and_what_looks_odd(cli: Cli, tmp_path: Path) -> None:
    table = pa.table(
        {
            "arrival_ns": [0, 0, 0, 9],
            "input_tokens": pa.array([40, 48, 40, 16], pa.uint32()),
            "output_tokens": pa.array([1, 0, 1, 1], pa.uint32()),
            "block_ids": pa.array([[1, 2, 3], [1, 2, 3], [4, 2, 5], [6]], pa.list_(pa.uint64())),
        }
    )
    with pa.OSFile(str(tmp_path / "odd.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    report = json.loads(cli("trace", "inspect", "odd.arrow", "--block-tokens", "16", "--json").out)
    assert report["rows"] == 4
    assert report["arrivals"]["ties"] == 2
    assert report["blocks"]["distinct"] == 6
    assert report["blocks"]["used_once"] == 3
    assert report["blocks"]["first_blocks"] == {
        "distinct": 3,
        "most_rows": 2,
        "most_rows_share": 0.5,
        "for_90_percent": 3,
    }
    assert report["infinite_rates"]["block"] == 0.3
    ties, silent, parents, sizes = report["remarks"]
    assert "2 of 3 neighbouring rows (67%)" in ties
    assert "row 2 first" in silent
    assert parents.startswith("ids with different predecessors in different rows: 1 (row 3 first)")
    assert sizes.startswith("ids seen at two sizes: 1 (row 2 first)")
    printed = cli("trace", "inspect", "odd.arrow", "--block-tokens", "16").out
    for remark in report["remarks"]:
        assert f"note: {remark}" in printed


def test_inspect_of_the_conversation_trace_gives_the_measured_figures(cli: Cli, tmp_path: Path, shared: Path) -> None:
    assert cli("trace", "import", shared / "traces/mooncake/conversation_trace.jsonl.gz").code == 0
    report = json.loads(cli("trace", "inspect", "conversation_trace.arrow", "--json").out)
    measured = json.loads((shared / "traces/mooncake/measured.json").read_text())["conversation"]["stats"]
    assert report["rows"] == measured["requests"]
    assert report["blocks"]["distinct"] == measured["unique_blocks"]
    assert report["input_tokens"]["mean"] == measured["avg_in"]
    assert report["output_tokens"]["mean"] == measured["avg_out"]
    assert report["infinite_rates"]["block"] == measured["inf_block_prefix"]
    assert report["infinite_rates"]["token"] == measured["inf_token_prefix"]
    assert report["infinite_rates"]["request_mean"] == pytest.approx(measured["inf_mean_req_block"], rel=1e-12)
    assert report["infinite_rates"]["request_mean_token"] == pytest.approx(measured["inf_mean_req_token"], rel=1e-12)
    assert report["arrivals"]["ties"] == 10_851
    assert report["arrivals"]["distinct"] == 1_180
    assert report["blocks"]["first_blocks"]["most_rows"] == 12_031


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("altair", "vl_convert")), reason="needs the extra 'report'"
)
def test_inspect_draws_what_it_found(cli: Cli, tmp_path: Path, sample: Path) -> None:
    run = cli("trace", "inspect", sample, "--plot", "c.svg")
    assert run.code == 0, run.err
    assert "wrote c.svg" in run.out
    drawn = (tmp_path / "c.svg").read_text()
    for title in ("live blocks", "share of repeated uses", "block tokens"):
        assert title in drawn
    assert "give --force" in cli("trace", "inspect", sample, "--plot", "c.svg").err
    assert "--force has no effect without --plot" in cli("trace", "inspect", sample, "--force").err
