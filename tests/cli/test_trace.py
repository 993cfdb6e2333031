"""``kvbench trace`` end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import kvbench

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
    assert report["blocks"]["first_blocks"] == {"distinct": 3, "most_rows": 2, "most_rows_share": 0.5}
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
