"""``kvbench replay`` end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kvbench
from kvbench.results.parquet import read_manifest
from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from conftest import Cli


def test_json_is_one_document_with_the_figures_of_the_library(cli: Cli, sample: Path) -> None:
    run = cli("replay", sample, "--capacity", "500", "--json")
    document = json.loads(run.out)
    assert run.err == ""
    assert document["summary"] == kvbench.replay(sample, capacity=500).summary
    assert document["wall_clock"]["replay_s"] > 0


def test_options_override_the_run_file(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "run.toml").write_text(f'trace = "{sample}"\ncapacity = 700\n[policy]\nname = "fifo"\n')
    by_file = json.loads(cli("replay", "--config", "run.toml", "--json").out)
    overridden = json.loads(cli("replay", "--config", "run.toml", "--capacity", "300", "--json").out)
    assert (by_file["config"]["capacity"], by_file["config"]["policy"]["name"]) == (700, "fifo")
    assert (overridden["config"]["capacity"], overridden["config"]["policy"]["name"]) == (300, "fifo")


def test_printed_configuration_can_be_run_again(cli: Cli, tmp_path: Path, sample: Path) -> None:
    settings = ["--capacity", "400", "--workers", "3", "--router", "max-prefix,fallback=round-robin", "--seed", "5"]
    printed = cli("replay", sample, *settings, "--print-config")
    assert tomllib.loads(printed.out)["router"].items() >= {"name": "max-prefix", "fallback": "round-robin"}.items()
    (tmp_path / "again.toml").write_text(printed.out)
    first = json.loads(cli("replay", sample, *settings, "--json").out)
    again = json.loads(cli("replay", "--config", "again.toml", "--json").out)
    assert {**first, "wall_clock": None} == {**again, "wall_clock": None}


def test_requests_file_has_a_row_a_request_and_the_manifest(cli: Cli, tmp_path: Path, sample: Path) -> None:
    document = json.loads(cli("replay", sample, "--capacity", "500", "-o", "out.parquet", "--json").out)
    table = pq.read_table(tmp_path / "out.parquet")
    manifest = read_manifest(tmp_path / "out.parquet")
    assert table.num_rows == document["summary"]["requests"]["done"]
    assert sum(table["hit_blocks"].to_pylist()) == document["summary"]["blocks"]["hit"]
    assert manifest == {key: document[key] for key in manifest}
    assert manifest["trace"]["digest"].startswith("blake3:")


@pytest.mark.parametrize("timed", [[], ["--compute", "fixed,prefill_ms_per_token=0.1,decode_ms=2"]])
def test_the_requests_file_says_whose_a_request_is_where_the_trace_does(
    cli: Cli, tmp_path: Path, timed: list[str]
) -> None:
    whose = {"session_id": ["s", None], "model": ["m", "n"], "adapter": [None, "a"], "tenant": ["t", "u"]}
    columns = {"arrival_ns": [0, 1], "input_tokens": pa.array([16, 16], pa.uint32()), "block_ids": [[1], [1]]}
    pq.write_table(pa.table(columns | whose), tmp_path / "trace.parquet")
    assert cli("replay", "trace.parquet", "--block-tokens", "16", *timed, "-o", "requests.parquet").code == 0
    table = pq.read_table(tmp_path / "requests.parquet")
    assert {name: table[name].to_pylist() for name in whose} == whose
    assert table["hit_blocks"].to_pylist() == [0, 0]


def test_events_fold_into_what_is_resident_at_the_end(cli: Cli, tmp_path: Path, sample: Path) -> None:
    settings = ["--capacity", "300", "--workers", "2", "--router", "random"]
    document = json.loads(cli("replay", sample, *settings, "--events", "events.parquet", "--json").out)
    held: list[set[int]] = [set(), set()]
    sequences = [0, 0]
    for event in pq.read_table(tmp_path / "events.parquet").to_pylist():
        worker = event["worker"]
        assert event["sequence"] == sequences[worker]
        sequences[worker] += 1
        if event["kind"] == "INSERT":
            assert event["key"] not in held[worker]
            assert event["parent"] is None or event["parent"] in held[worker]
            held[worker].add(event["key"])
        else:
            held[worker].remove(event["key"])
    assert [len(keys) for keys in held] == [each["resident_blocks"] for each in document["summary"]["workers"]["each"]]


def test_stream_on_standard_input_gives_the_same_bytes_as_the_file(cli: Cli, tmp_path: Path, sample: Path) -> None:
    with pa.memory_map(str(sample)) as source:
        table = pa.ipc.open_file(source).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    # Without the Belady bound, for which a stream would have to be read twice.
    settings = ["--capacity", "500", "--belady", "off"]
    assert cli("replay", sample, *settings, "-o", "file.parquet").code == 0
    run = cli("replay", "-", *settings, "-o", "pipe.parquet", stdin=sink.getvalue().to_pybytes())
    assert run.code == 0, run.err
    assert (tmp_path / "file.parquet").read_bytes() == (tmp_path / "pipe.parquet").read_bytes()


def test_table_ends_in_the_wall_clock_and_has_no_trailing_blanks(cli: Cli, sample: Path) -> None:
    lines = cli("replay", sample, "--capacity", "10%", "--workers", "2").out.splitlines()
    assert lines[-1].startswith("wall clock: ")
    assert all(line == line.rstrip() for line in lines)
    assert any(line.startswith("max/mean") for line in lines)


def test_trace_without_ids_has_unknown_rates_not_zero_ones(cli: Cli, tmp_path: Path) -> None:
    table = pa.table({"arrival_ns": [0, 1], "input_tokens": pa.array([10, 20], pa.uint32())})
    pq.write_table(table, tmp_path / "plain.parquet")
    document = json.loads(cli("replay", "plain.parquet", "--json").out)
    assert set(document["summary"]["rates"].values()) == {None}
    assert document["summary"]["tokens"]["input"] == 30
    assert "unknown" in cli("replay", "plain.parquet").out


def test_bad_rows_are_left_out_and_counted_on_request(cli: Cli, tmp_path: Path) -> None:
    table = pa.table(
        {
            "arrival_ns": [0, 1, 2],
            "input_tokens": pa.array([32, 0, 32], pa.uint32()),
            "block_ids": pa.array([[0, 1], [], [0, 1]], pa.list_(pa.uint64())),
        }
    ).replace_schema_metadata(TraceFacts(block_tokens=16).to_metadata())
    pq.write_table(table, tmp_path / "zero.parquet")
    assert cli("replay", "zero.parquet").code == 2
    document = json.loads(cli("replay", "zero.parquet", "--on-error", "skip", "--json").out)
    assert document["summary"]["requests"]["rejected"] == 1
    assert document["summary"]["requests"]["arrived"] == 3
    assert document["summary"]["rates"]["request_mean"] == 0.5


@pytest.mark.parametrize("seeds", [[], ["--seeds", "2"]])
def test_a_run_that_served_nobody_is_written_and_is_an_error(
    cli: Cli, tmp_path: Path, sample: Path, seeds: list[str]
) -> None:
    output = [] if seeds else ["-o", "requests.parquet"]
    compute = ("--compute", "fixed,prefill_ms_per_token=0.1,decode_ms=2")
    run = cli("replay", sample, "--capacity", "3", *compute, *seeds, *output, "--json")
    assert (run.code, bool(json.loads(run.out))) == (2, True)
    assert run.err.startswith("error: no request was served, so there are no figures: all 1,952 were rejected, ")
    assert "request 0 needs 19 GPU blocks" in run.err
    assert (tmp_path / "requests.parquet").exists() is not bool(seeds)


def test_ctrl_c_inside_the_compiled_loop_stops_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    blocks, rows = 2_000, 60_000
    ids = pa.ListArray.from_arrays(
        pa.array(np.arange(rows + 1, dtype=np.int32) * blocks),
        pa.array(np.tile(np.arange(blocks, dtype=np.uint64), rows)),
    )
    table = pa.table(
        {
            "arrival_ns": pa.array(np.arange(rows)),
            "input_tokens": pa.array(np.full(rows, blocks * 16, dtype=np.uint32)),
            "block_ids": ids,
        }
    ).replace_schema_metadata(TraceFacts(block_tokens=16, dense=True).to_metadata())
    with pa.OSFile(str(tmp_path / "long.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1_000)
    process = subprocess.Popen(
        # Each block of each request misses and evicts one, so the compiled loop is busy for seconds.
        [sys.executable, "-m", "kvbench", "replay", "long.arrow", "-o", "out.parquet", "--capacity", "10"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    while not any(path.name.endswith(".part") for path in tmp_path.iterdir()):
        assert process.poll() is None, "the replay ended before it could be interrupted"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.split("\n")[-2:] == ["error: interrupted; nothing was written", ""]
    assert [path.name for path in tmp_path.iterdir()] == ["long.arrow"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("source", ["-", "pipe"])
def test_a_replay_that_waits_for_its_input_stops_when_told_to(
    tmp_path: Path, sample: Path, number: signal.Signals, code: int, source: str
) -> None:
    """The first batches are there, the rest never comes."""
    with pa.memory_map(str(sample)) as file:
        table = pa.ipc.open_file(file).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=300)
    os.mkfifo(tmp_path / "pipe")
    process = subprocess.Popen(
        [sys.executable, "-m", "kvbench", "replay", source, "-o", "out.parquet"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert process.stdin is not None
    with process.stdin if source == "-" else open(tmp_path / "pipe", "wb") as feed:
        feed.write(sink.getvalue().to_pybytes()[:-50_000])
        feed.flush()
        while not any(path.name.endswith(".part") for path in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.2)
        started = time.monotonic()
        process.send_signal(number)
        process.wait(timeout=60)
        assert time.monotonic() - started < 5
    assert process.stderr is not None
    err = process.stderr.read().decode()
    process.stderr.close()
    process.stdin.close()
    assert process.returncode == code, err
    assert err.strip().endswith("nothing was written")
    assert "Traceback" not in err
    assert "Fatal" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_an_interrupt_while_the_command_line_is_being_imported_is_one_line() -> None:
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'kvbench.cli.root':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from kvbench.cli import main\n"
        "assert 'click' not in sys.modules\n"
        "main(['--help'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: interrupted; nothing was written\n")


def test_a_timed_replay_says_what_took_no_time_and_what_did_not_converge(cli: Cli, sample: Path) -> None:
    timed = ("--compute", "fixed,prefill_ms_per_token=0.1,decode_ms=20", "--tier", "gpu,capacity=800")
    out = cli("replay", sample, *timed, "--tier", "cpu,capacity=2k", "--stop", "converged=0.01").out
    assert "note: moves of cpu take no time without a device" in out
    assert "not converged: the mean TTFT was not known to 0.01 of it" in out
    device = ("--tier", "cpu,capacity=2k,device=cpu-pcie5", "--block-bytes", "1MiB")
    assert "take no time" not in cli("replay", sample, *timed, *device).out
