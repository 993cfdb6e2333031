"""Bad input gets one clear line, exit code 2, and leaves no file behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from conftest import Cli, Run

GOOD_ROW = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}


TIMED = ("--compute", "fixed,prefill_ms_per_token=1,decode_ms=1")


def refused(run: Run, *parts: str) -> None:
    assert run.code == 2, run
    lines = [line for line in run.err.splitlines() if line.startswith(("error:", "Error:"))]
    assert len(lines) == 1, run.err
    assert "Traceback" not in run.err
    for part in parts:
        assert part in lines[0], (part, lines[0])


def write_ipc(path: Path, columns: dict[str, Any], facts: TraceFacts | None) -> Path:
    table = pa.table(columns)
    if facts is not None:
        table = table.replace_schema_metadata(facts.to_metadata())
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return path


def ipc(tmp_path: Path, *, block_tokens: int | None = 16, **changes: Any) -> Path:
    """A small trace of three rows, with ``changes`` to its columns."""
    facts = None if block_tokens is None else TraceFacts(block_tokens=block_tokens)
    columns = {
        "arrival_ns": [0, 1, 2],
        "input_tokens": pa.array([32, 32, 32], pa.uint32()),
        "block_ids": pa.array([[0, 1], [0, 2], [0, 3]], pa.list_(pa.uint64())),
        **changes,
    }
    return write_ipc(tmp_path / "bad.arrow", {k: v for k, v in columns.items() if v is not None}, facts)


def jsonl(tmp_path: Path, row: int, text: str) -> Path:
    lines = [json.dumps({**GOOD_ROW, "timestamp": at}) for at in range(10)]
    lines[row - 1] = text
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_truncated_arrow_file_is_named(cli: Cli, tmp_path: Path, sample: Path) -> None:
    whole = sample.read_bytes()
    cut = tmp_path / "cut.arrow"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    refused(cli("replay", cut, "-o", "out.parquet"), "cut.arrow")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.arrow"]


def test_json_syntax_error_names_its_row(cli: Cli, tmp_path: Path) -> None:
    refused(cli("trace", "import", jsonl(tmp_path, 7, '{"timestamp": 6, "input_length": }')), "bad.jsonl", "row 7")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.jsonl"]


def test_wrong_id_count_names_row_field_and_rule(cli: Cli, tmp_path: Path) -> None:
    bad = json.dumps({**GOOD_ROW, "timestamp": 2, "hash_ids": [0, 1, 2, 3]})
    refused(cli("trace", "import", jsonl(tmp_path, 3, bad)), "bad.jsonl, row 3", "ids", "600", "512")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.jsonl"]


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"arrival_ns": [0, -5, 2]}, ("row 2", "arrival_ns", "-5")),
        ({"arrival_ns": [0, 5, 2]}, ("row 3", "arrival_ns", "2")),
        ({"input_tokens": pa.array([32, 32, 0], pa.uint32())}, ("row 3", "input_tokens", "0")),
        ({"block_ids": [[0, 1], [2, 2], [0, 3]]}, ("row 2", "block_ids", "2")),
        ({"token_ids": pa.array([[1], [1], [1]], pa.list_(pa.uint32()))}, ("two id columns",)),
        ({"input_tokens": ["a", "b", "c"]}, ("input_tokens", "string")),
        ({"block_ids": None, "blocks": [[0, 1], [0, 2], [0, 3]]}, ("unknown column", "blocks")),
        ({"arrival_ns": None}, ("arrival_ns", "missing")),
    ],
    ids=["negative", "order", "zero", "twice", "two-columns", "type", "unknown", "missing"],
)
def test_each_broken_rule_of_the_schema_is_named(
    cli: Cli, tmp_path: Path, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    refused(cli("replay", ipc(tmp_path, **changes), "-o", "out.parquet"), *parts)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.arrow"]


def test_missing_block_size_says_how_to_give_it_and_what_would_fit(cli: Cli, tmp_path: Path) -> None:
    refused(cli("replay", ipc(tmp_path, block_tokens=None)), "--block-tokens", "16", "31")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--capacity", "10", "--policy", "lur"], ("'lur'", "did you mean 'lru'", "fifo")),
        (["--capacity", "10", "--policy", "lru,window=3"], ("unknown parameter", "window")),
        (["--capacity", "10", "--policy", "lru,window"], ("window", "key=value")),
        (["--capacity", "0"], ("--capacity = 0", "at least one block")),
        (["--capacity", "ten"], ("ten", "not a number")),
        (["--capacity", "-5"], ("-5", "must not be negative")),
        (["--capacity", "1e5000"], ("1e5000", "out of range")),
        (["--capacity", "1e99999999"], ("1e99999999", "out of range")),
        (["--capacity", "9" * 5000], ("9999", "out of range")),
        (["--capacity", "64gib", "--block-bytes", "1"], ("gib", "did you mean GiB?", "MB")),
        (["--capacity", "5", "--block-bytes", "1mib"], ("mib", "did you mean MiB?")),
        (["--block-tokens", "4294967296"], ("--block-tokens", "4,294,967,295")),
        (["--capacity", "5GiB"], ("--block-bytes",)),
        (["--capacity", "5B", "--block-bytes", "10B"], ("smaller than one block",)),
        (["--capacity", "200%"], ("share",)),
        (["--capacity", "99G"], ("at most",)),
        (["--workers", "0"], ("--workers", "at least 1")),
        (["--router", "random"], ("no effect", "--workers")),
        (["--policy", "lru"], ("no effect", "--capacity")),
        (["--order", "access"], ("no effect", "--capacity")),
        (["--index", "oracle"], ("--index", "no effect", "--workers")),
        (["--workers", "2", "--index", "oracel"], ("--index oracel", "did you mean 'oracle'")),
        (["--workers", "2", "--event-channel", "delay=soon"], ("--event-channel: delay", "soon", "number")),
        (["--workers", "2", "--event-channel", "delay=1e18h"], ("--event-channel: delay", "out of range")),
        (["--workers", "2", "--event-channel", "batch=" + "9" * 30], ("batch", "9999")),
        (["--workers", "2", "--event-channel", "loss=nan"], ("loss", "share")),
        (["--workers", "2", "--load", "window"], ("--load window", "key=value")),
        (["--workers", "2", "--router", "max-prefix,fallback=none"], ("fallback", "random, round-robin")),
        (["--tokens", "chained"], ("block_ids", "chained", "token_ids")),
        (["--id-scope", "session,", "--block-tokens", "0"], ("--id-scope", "session")),
        (["--block-tokens", "0"], ("--block-tokens",)),
        (["--config", "none.toml"], ("none.toml", "cannot be read")),
        (["--seed", "x"], ("--seed",)),
        (["--slo", "ttft=1s"], ("--slo", "no effect", "--compute")),
        ([*TIMED, "--slo", "ttft=500"], ("--slo: ttft: 500", "unit is missing", "500ms")),
        (
            [*TIMED, "--link", "nic,read_gb_per_s=0", "--tier", "gpu", "--tier", "cpu,path=nic"],
            ("link nic", "= 0 must"),
        ),
        ([*TIMED, "--capacity", "1k,2k"], ("--compute", "one capacity")),
        (["--compute", "fixd"], ("'fixd'", "did you mean 'fixed'")),
    ],
)
def test_each_bad_setting_is_named_with_its_value(
    cli: Cli, tmp_path: Path, sample: Path, arguments: list[str], parts: tuple[str, ...]
) -> None:
    refused(cli("replay", sample, "-o", "out.parquet", *arguments), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('capacitty = "10k"', ("run.toml", "capacitty", "did you mean 'capacity'")),
        ("workers = true", ("run.toml", "workers")),
        ("workers = [", ("run.toml", "not valid TOML")),
        ("workers = " + "9" * 5000, ("run.toml", "not valid TOML")),
        ("workers = " + "[" * 100_000, ("run.toml", "not valid TOML")),
        ("policy = {keep = 1}\ncapacity = 10", ("policy", "name")),
        ('tails = "half"', ("run.toml", "half")),
    ],
)
def test_bad_run_file_is_named(cli: Cli, tmp_path: Path, sample: Path, text: str, parts: tuple[str, ...]) -> None:
    (tmp_path / "run.toml").write_text(text)
    refused(cli("replay", sample, "--config", "run.toml"), *parts)


@pytest.mark.parametrize(
    "output",
    ["no/such/folder/out.parquet", ".", "x" * 300, "/dev/null"],
    ids=["missing-folder", "folder", "long", "device"],
)
@pytest.mark.parametrize("option", ["--output", "--events"])
def test_output_that_cannot_be_written_is_named(
    cli: Cli, tmp_path: Path, sample: Path, option: str, output: str
) -> None:
    refused(cli("replay", sample, option, output), output)
    assert list(tmp_path.iterdir()) == []


def test_existing_output_is_kept_unless_forced(cli: Cli, tmp_path: Path, sample: Path) -> None:
    kept = tmp_path / "out.parquet"
    kept.write_text("precious")
    refused(cli("replay", sample, "-o", "out.parquet"), "out.parquet", "--force")
    assert kept.read_text() == "precious"
    assert cli("replay", sample, "-o", "out.parquet", "--force").code == 0
    assert kept.read_bytes().startswith(b"PAR1")


def test_force_without_a_file_is_refused(cli: Cli, sample: Path) -> None:
    refused(cli("replay", sample, "--force"), "no effect", "--output")


def test_one_file_for_both_tables_is_refused(cli: Cli, tmp_path: Path, sample: Path) -> None:
    refused(cli("replay", sample, "-o", "out.parquet", "--events", "out.parquet"), "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_one_file_for_both_tables_is_refused_however_it_is_spelled(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "link").symlink_to("out.parquet")
    for other in ("./out.parquet", tmp_path / "out.parquet", "link"):
        refused(cli("replay", sample, "-o", "out.parquet", "--events", other, "--force"), "same file")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize("option", ["--output", "--events"])
def test_the_trace_is_not_overwritten_however_it_is_spelled(
    cli: Cli, tmp_path: Path, sample: Path, option: str
) -> None:
    trace = tmp_path / "t.arrow"
    trace.write_bytes(sample.read_bytes())
    (tmp_path / "link").symlink_to(trace)
    for spelling in (trace, "./t.arrow", "link"):
        refused(cli("replay", "t.arrow", option, spelling, "--force"), "is the trace that is read")
    assert trace.read_bytes() == sample.read_bytes()


def test_neither_table_appears_when_one_cannot_be_written(cli: Cli, tmp_path: Path, sample: Path) -> None:
    refused(cli("replay", sample, "-o", "out.parquet", "--events", "no/such.parquet"), "no/such.parquet")
    (tmp_path / "events.parquet").mkdir()
    refused(cli("replay", sample, "-o", "out.parquet", "--events", "events.parquet"), "is a directory")
    assert [path.name for path in tmp_path.iterdir()] == ["events.parquet"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("options", [[], ["--json"], ["--help"]])
def test_standard_output_that_cannot_be_written_is_told(sample: Path, options: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kvbench", "replay", str(sample), *options]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: standard output: No space left on device\n"


def test_a_reader_of_the_output_that_goes_away_is_no_error(sample: Path) -> None:
    command = [sys.executable, "-m", "kvbench", "replay", str(sample), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()


def test_closed_standard_input_is_told() -> None:
    command = f"{sys.executable} -m kvbench replay - <&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: -: standard input is closed\n")


def test_a_trace_is_not_imported_again(cli: Cli, tmp_path: Path, sample: Path) -> None:
    refused(cli("trace", "import", sample, "-o", "again.arrow"), "chat.arrow", "already")
    refused(cli("trace", "import", sample, "-o", "again.arrow", "--format", "mooncake"), "chat.arrow", "already")
    assert list(tmp_path.iterdir()) == []


def test_foreign_file_is_pointed_to_the_importer(cli: Cli, tmp_path: Path) -> None:
    refused(cli("replay", jsonl(tmp_path, 1, json.dumps(GOOD_ROW))), "bad.jsonl", "kvbench trace import")


def test_unknown_command_is_answered_with_the_nearest_one(cli: Cli) -> None:
    refused(cli("repaly"), "did you mean 'replay'")


def test_a_closed_loop_without_sessions_is_refused(cli: Cli, tmp_path: Path) -> None:
    refused(cli("replay", ipc(tmp_path), *TIMED, "--arrivals", "session"), "--arrivals session", "session_id")


def test_share_of_a_stream_is_refused(cli: Cli, sample: Path) -> None:
    with pa.memory_map(str(sample)) as source:
        table = pa.ipc.open_file(source).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    refused(cli("replay", "-", "--capacity", "10%", stdin=sink.getvalue().to_pybytes()), "share", "only once")


@pytest.mark.parametrize(
    "command",
    [
        ("replay", "--capacity", "9"),
        ("replay", "--capacity", "9,10"),
        ("replay", "--capacity", "9", "--policy", "lru", "--policy", "arc"),
        ("replay", "--capacity", "9", "--workers", "2", "--router", "random", "--router", "max-prefix"),
        ("replay", "--capacity", "9", "--workers", "2", "--router", "random", "--seeds", "2", *TIMED),
        ("curve",),
        ("sweep", "--capacity", "9,10"),
        ("sweep", "--capacity", "9,10", "--method", "replay"),
    ],
    ids=" ".join,
)
def test_a_result_of_nobody_is_told_alike_by_every_command(cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    columns = {"arrival_ns": [0, 1], "input_tokens": pa.array([0, 0], pa.uint32()), "block_ids": [[1], [2]]}
    trace = write_ipc(tmp_path / "trace.arrow", columns, TraceFacts(16))
    done = cli(command[0], trace, *command[1:], "--on-error", "skip", "--json")
    refused(done, "no request was served", "all 2 were rejected, for example: ", "trace.arrow, row 1, input_tokens = 0")
    assert json.loads(done.out)["kvbench"]
