"""Tiers on the command line: bad settings get one clear line and leave no file, good ones can be run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvbench.trace.schema import TraceFacts

if TYPE_CHECKING:
    from conftest import Cli, Run

GPU = ("--tier", "gpu,capacity=100")
CPU = ("--tier", "cpu,capacity=500")
ALL_FILES = ("-o", "out.parquet", "--events", "events.parquet")


def refused(run: Run, *parts: str) -> None:
    assert run.code == 2, run
    lines = [line for line in run.err.splitlines() if line.startswith(("error:", "Error:"))]
    assert len(lines) == 1, run.err
    assert "Traceback" not in run.err
    assert run.out == ""
    for part in parts:
        assert part in lines[0], (part, lines[0])


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Three requests of two tenants, at 16 tokens a block."""
    columns = {
        "arrival_ns": [0, 1, 2],
        "input_tokens": pa.array([32, 32, 32], pa.uint32()),
        "block_ids": pa.array([[0, 1], [0, 2], [0, 1]], pa.list_(pa.uint64())),
        "tenant": ["x", "y", "x"],
    }
    return _write(tmp_path / "few.arrow", columns)


def _write(path: Path, columns: dict[str, Any], facts: TraceFacts | None = None) -> Path:
    table = pa.table(columns).replace_schema_metadata((facts or TraceFacts(block_tokens=16)).to_metadata())
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return path


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--tier", "gpu,capcity=5"], ("unknown key 'capcity'", "did you mean 'capacity'")),
        (["--tier", "gpu,capacity=5,quotas=9"], ("quotas.NAME=10GiB",)),
        (["--tier", "gpu,capacity=5,capacity=6"], ("capacity is given twice",)),
        (["--tier", "capacity=5"], ("begin with the tier's name",)),
        (["--tier", "gpu,capacity=0"], ("tier gpu: capacity = 0", "at least one block")),
        (["--tier", "gpu,capacity=100B", "--block-bytes", "1MiB"], ("smaller than one block of 1,048,576 bytes",)),
        (["--tier", "gpu,capacity=63tok"], ("smaller than one block of 64 tokens",)),
        (["--tier", "gpu,capacity=5,chunk=8"], ("less than one chunk of 8 blocks",)),
        (["--tier", "gpu,capacity=0.001%"], ("tier gpu: capacity = 0.001%", "less than one chunk")),
        (["--tier", "gpu,capacity=1GiB"], ("tier gpu", "--block-bytes or --model")),
        (["--tier", "gpu,capacity=5x"], ("tier gpu: capacity = 5x", "unit 'x'")),
        (["--tier", "gpu,capacity=99999999999"], ("tier gpu", "at most 1,073,741,824")),
        (["--tier", "gpu,chunk=99999999999"], ("tier gpu: chunk",)),
        (["--tier", "gpu,capacity=9,high=0.9,low=0.5,period_s=inf"], ("period_s = inf",)),
        (["--tier", "gpu,capacity=9,policy="], ("unknown eviction policy ''",)),
        (["--tier", "gpu,capacity=9,policy=lur"], ("'lur'", "did you mean 'lru'")),
        (["--tier", "gpu,capacity=9,policy.k=3"], ("tier gpu: policy", "needs a key 'name'")),
        (["--tier", "gpu,capacity=9,policy=lru,policy.k=3"], ("unknown parameter", "k")),
        (["--tier", "gpu,capacity=9,policy=tenant-lru"], ("tenant-lru needs tenant",)),
        (["--tier", "gpu,capacity=9,quotas.x=5"], ("tenant-lru needs tenant",)),
        (
            ["--tier", "gpu,capacity=9", "--tier", "cpu,capacity=9,write=back,fit=all"],
            ("tier cpu: fit = all has no effect with write back",),
        ),
        (
            ["--tier", "gpu,capacity=9", "--tier", "cpu,capacity=9,write=none,admission=tinylfu"],
            ("tier cpu: admission has no effect with write none",),
        ),
        (["--tier", "gpu,capacity=9,admission=min-cont"], ("did you mean 'min-count'",)),
        (["--tier", "gpu,capacity=9,admission=min-count,admission.n=0"], ("n = '0' is below 1",)),
        (["--tier", "gpu,capacity=9,device=nvme"], ("unknown device 'nvme'", "nvme-gen4")),
        (["--tier", "gpu,device=s3,device.read_gb_per_s=0"], ("read_gb_per_s", "below")),
        (["--tier", "gpu,capacity=8,chunk=2", *CPU], ("chunk = 1 is no multiple", "2")),
        ([*GPU, *GPU], ("two tiers are called gpu",)),
        (["--tier", "gpu,capacity=5,write=back"], ("write back needs a tier above",)),
        ([*GPU, "--tier", "cpu,promotion=copy"], ("promotion has no effect in the last tier",)),
        ([*GPU, "--walk", "once"], ("--walk has no effect with one tier",)),
        ([*GPU, "--placement", "exclusive"], ("--placement exclusive has no effect with one tier",)),
        ([*GPU, "--order", "access"], ("--order access",)),
        ([*GPU, "--policy", "lru"], ("--capacity and --policy", "in each --tier")),
        ([*GPU, "--policy", "lru", "--policy", "fifo"], ("--capacity and --policy", "in each --tier")),
        ([*GPU, "--capacity", "10,20"], ("--capacity and --policy", "in each --tier")),
        ([*GPU, "--timeline-every", "5"], ("--timeline-every has no effect without --timeline",)),
        ([*GPU, "--timeline", "t.parquet", "--timeline-every", "0"], ("--timeline-every = 0",)),
        ([*GPU, "--retries", "2"], ("--retries has no effect without --faults",)),
        ([*GPU, "--faults", "none.toml"], ("none.toml: cannot be read",)),
        ([*GPU, "--faults", "."], (".: cannot be read",)),
        ([*GPU, "--devices", "none.toml"], ("--devices has no effect: no tier has a device",)),
        (["--tier", "gpu,device=s3", "--devices", "none.toml"], ("none.toml: cannot be read",)),
        ([*GPU, "--prefill-tokens-per-s", "100"], ("--prefill-tokens-per-s has no effect",)),
        (["--tier", "gpu,device=s3", "--prefill-tokens-per-s", "nan"], ("--prefill-tokens-per-s = nan",)),
        (["--tier", "gpu,device=s3", "--prefill-tokens-per-s", "9"], ("no effect without --block-bytes",)),
        (["--tier", "gpu,capacity=5,scope=cluster"], ("scope cluster has no effect with one worker",)),
        (["--tier", "gpu,scope=host", "--workers-per-host", "4"], ("scope host has no effect with one worker",)),
        (["--tier", "gpu,capacity=5,scope=rank"], ("scope rank has no effect with one rank; give --tp",)),
        (["--tier", "gpu,capacity=5,scope=rank", "--tp", "100000"], ("tier gpu: 100,000 ranks", "at most 65,536")),
        ([*GPU, "--tp", "2"], ("--tp has no effect without --model",)),
        ([*GPU, "--kv-dtype", "fp8"], ("--kv-dtype has no effect without --model",)),
        ([*GPU, "--model", "Llama-9"], ("unknown model 'Llama-9'",)),
        ([*GPU, "--model", "Llama-3.1-8B", "--block-bytes", "5"], ("--block-bytes and --model",)),
        ([*GPU, "--model", "Llama-3.1-8B", "--kv-dtype", "bogus"], ("--kv-dtype = 'bogus' is not a dtype",)),
        ([*GPU, "--model", "Llama-3.1-8B", "--models", "none.toml"], ("none.toml: cannot be read",)),
        ([*GPU, "--model", "Llama-3.1-8B", "--save-only-first-rank"], ("--save-only-first-rank has no effect",)),
        (["--preset", "vlm"], ("unknown preset 'vlm'", "did you mean 'vllm'")),
        (["--preset", "vllm", *CPU], ("preset vllm has no tier 'cpu'", "gpu")),
        (["--preset", "vllm", "--walk", "once"], ("--walk has no effect with one tier",)),
        (["--preset", "vllm", "--capacity", "5"], ("--capacity and --policy",)),
        (["--preset", "opal"], ("tier cpu: capacity = 8GiB is in bytes",)),
        (["--preset", "kvbm", "--placement", "spill"], ("tier g1", "no effect with placement spill")),
        (["--store-output", *GPU], ("--store-output needs the columns",)),
        (["--tier", "gpu", "--belady", "on"], ("--belady on has no effect",)),
        (["--print-config", "--json", *GPU], ("--json has no effect with --print-config",)),
        (["--capacity", "5", "--timeline", "t.parquet"], ("--timeline has no effect without tiers",)),
        (["--capacity", "5", "--placement", "spill"], ("--placement has no effect without tiers",)),
    ],
)
def test_each_bad_setting_is_one_clear_line_and_nothing_is_written(
    cli: Cli, tmp_path: Path, sample: Path, options: list[str], parts: tuple[str, ...]
) -> None:
    refused(cli("replay", sample, *ALL_FILES, *options), *parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--tier", "gpu,capacity=100,quotas.x=60,quotas.y=50"], ("quotas of 110 blocks", "its capacity of 100")),
        (["--tier", "gpu,capacity=100,chunk=8,quotas.x=4"], ("quota of x = 4", "less than one chunk of 8")),
        (["--tier", "gpu,capacity=100,quotas.x=0"], ("quota of x = 0", "at least one block")),
        (["--tier", "gpu,capacity=100,quotas.x=10%"], ("quota of x = 10%", "no number of blocks")),
        (["--tier", "gpu,capacity=100,quotas.x=infinite"], ("quota of x = infinite", "no number of blocks")),
        (["--tier", "gpu,capacity=100,quotas.x=1GiB"], ("quota of x = 1GiB", "--block-bytes")),
        (["--tier", "gpu,capacity=100%,quotas.x=1"], ("quotas need a capacity in blocks",)),
        (["--tier", "gpu,capacity=9,quotas.x=1,policy=lru"], ("leave policy out",)),
        (["--tier", "gpu,capacity=9,quotas.x=1,quotas.nobody=2"], ("quota of nobody", "no request of the trace")),
        (["--tier", "gpu,capacity=9,quotas.x=1", "--tier", "cpu,capacity=9,quotas.y=1"], ("the same tenants",)),
        (["--tier", "gpu,capacity=9,chunk=2,policy=belady"], ("looks ahead", "chunk 1")),
    ],
)
def test_each_bad_quota_is_one_clear_line(
    cli: Cli, tmp_path: Path, few: Path, options: list[str], parts: tuple[str, ...]
) -> None:
    refused(cli("replay", few, *ALL_FILES, *options), *parts)
    assert list(tmp_path.iterdir()) == [few]


@pytest.mark.parametrize("name", ["config.json", "folder", "text", "bytes", "list"])
def test_an_unreadable_model_config_is_one_clear_line(cli: Cli, tmp_path: Path, sample: Path, name: str) -> None:
    path = tmp_path / name
    content = {"config.json": b"{", "text": b"no JSON", "bytes": b"\xff\xfe\x00", "list": b"[1]"}
    if name == "folder":
        path.mkdir()
    else:
        path.write_bytes(content[name])
    refused(cli("replay", sample, *GPU, "--model", path, *ALL_FILES), str(path))
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[[fault]]\nkind = "get"\ntier = "gpus"', ("fault 1", "no tier is called 'gpus'", "did you mean 'gpu'")),
        ('[[fault]]\nkind = "melt"\ntier = "gpu"', ("'melt'",)),
        ('[[fault]]\nkind = "get"\ntier = "gpu"\nto_s = inf', ("fault 1", "to_s = inf")),
        ('[[fault]]\nkind = "restart"\ntier = "gpu"', ("fault 1", "from_request or from_s")),
        ("[[fault", ("not valid TOML",)),
        ("", ("fault",)),
        ("fault = []", ("no fault in it",)),
        ("x = " + "[" * 100_000, ("not valid TOML",)),
        ('[[fault]]\nkind = "freeze"', ("--retries has no effect: no get or put fails",)),
    ],
)
def test_a_bad_fault_plan_is_one_clear_line(
    cli: Cli, tmp_path: Path, sample: Path, text: str, parts: tuple[str, ...]
) -> None:
    plan = tmp_path / "faults.toml"
    plan.write_text(text)
    refused(cli("replay", sample, *GPU, "--faults", "faults.toml", "--retries", "2", *ALL_FILES), "faults.toml", *parts)
    assert list(tmp_path.iterdir()) == [plan]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("tiers = 3", ("Expected `array", "tiers")),
        ("tiers = [3]", ("tiers[0]",)),
        ("[[tiers]]\ncapacity = 5", ("name",)),
        ('[[tiers]]\nname = "a"\ncapcity = 5', ("capcity", "tiers[0]")),
        ('[[tiers]]\nname = "a"\ncapacity = 5.5', ("capacity", "tiers[0]")),
        ('[[tiers]]\nname = "a"\nwrite = "spill"', ("'spill'",)),
        ('preset = "vllm"\n[[tiers]]\nname = "a"', ("preset vllm has no tier 'a'",)),
        ('preset = "vllm"\ntiers = 3', ("tiers",)),
        ('preset = "vllm"\ntiers = [3]', ("tiers",)),
        ('preset = "vllm"\n[[tiers]]\ncapacity = 3', ("name",)),
    ],
)
def test_a_bad_table_of_a_run_file_is_one_clear_line(
    cli: Cli, tmp_path: Path, sample: Path, text: str, parts: tuple[str, ...]
) -> None:
    (tmp_path / "run.toml").write_text(text)
    refused(cli("replay", sample, "--config", "run.toml"), *parts)


# -- traces that tiers mean nothing for --------------------------------------------------------------


def test_tiers_need_ids(cli: Cli, tmp_path: Path) -> None:
    trace = _write(tmp_path / "no.arrow", {"arrival_ns": [0], "input_tokens": pa.array([5], pa.uint32())}, TraceFacts())
    for options in (GPU, ("--preset", "vllm"), ("--tier", "gpu")):
        refused(cli("replay", trace, *options, "-o", "out.parquet"), "--tier", "has no effect", "neither block_ids")
    assert list(tmp_path.iterdir()) == [trace]


def test_a_stream_is_read_once(cli: Cli, sample: Path) -> None:
    with pa.memory_map(str(sample)) as source:
        table = pa.ipc.open_file(source).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream = sink.getvalue().to_pybytes()
    done = cli("replay", "-", *GPU, "--tier", "cpu", "--json", stdin=stream)
    summary = json.loads(done.out)["summary"]
    expected = json.loads(cli("replay", sample, *GPU, "--tier", "cpu", "--json").out)["summary"]
    assert summary == expected
    refused(cli("replay", "-", "--tier", "gpu,capacity=10%", stdin=stream), "tier gpu: capacity = 10%", "only once")
    refused(cli("replay", "-", "--tier", "gpu,capacity=9,policy=belady", stdin=stream), "looks ahead", "only once")


def test_an_empty_trace_is_replayed(cli: Cli, tmp_path: Path, few: Path) -> None:
    with pa.memory_map(str(few)) as source:
        table = pa.ipc.open_file(source).read_all().slice(0, 0)
    with pa.OSFile(str(tmp_path / "empty.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    done = cli("replay", "empty.arrow", *GPU, "--tier", "cpu", *ALL_FILES, "--timeline", "timeline.parquet")
    assert done.code == 0, done.err
    assert pq.read_table(tmp_path / "events.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "timeline.parquet")["requests"].to_pylist() == [0, 0]


@pytest.mark.parametrize(
    "options",
    [
        ["--seen", "off"],
        ["--tails", "keep"],
        ["--workers", "3", "--workers-per-host", "2"],
        ["--workers", "3", "--router", "round-robin", "--seen", "off"],
    ],
)
def test_odd_but_meaningful_settings_run(cli: Cli, sample: Path, options: list[str]) -> None:
    host = ",scope=host" if "--workers-per-host" in options else ""
    tiers = ["--tier", "gpu,capacity=50", "--tier", f"cpu,capacity=500{host}", "--tier", f"ssd{host}"]
    done = cli("replay", sample, *tiers, *options, "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)["summary"]
    assert sum(tier["hit_blocks"] for tier in summary["tiers"]) == summary["blocks"]["hit"] > 0
    assert [tier["stores"] for tier in summary["tiers"]] == ([3, 2, 2] if host else [summary["workers"]["count"]] * 3)
    assert cli("replay", sample, *tiers, *options).code == 0


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["--output", "--events"])
def test_one_file_for_two_tables_is_refused(cli: Cli, tmp_path: Path, sample: Path, other: str) -> None:
    for spelling in ("t.parquet", "./t.parquet", tmp_path / "t.parquet"):
        refused(cli("replay", sample, *GPU, "--timeline", "t.parquet", other, spelling, "--force"), "same file")
    assert list(tmp_path.iterdir()) == []


def test_a_timeline_that_cannot_be_written_is_named(cli: Cli, tmp_path: Path, sample: Path) -> None:
    for path in ("no/t.parquet", ".", "x" * 300):
        refused(cli("replay", sample, *GPU, *ALL_FILES, "--timeline", path), path)
    (tmp_path / "t.parquet").write_text("precious")
    refused(cli("replay", sample, *GPU, *ALL_FILES, "--timeline", "t.parquet"), "t.parquet", "--force")
    refused(cli("replay", sample, *GPU, "--timeline", sample, "--force"), "is the trace that is read")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    assert (tmp_path / "t.parquet").read_text() == "precious"


# -- run again -------------------------------------------------------------------------------------


DEVICE = """[mine]
medium = "nvme"
basis = "effective"
help = "my drive"
read_gb_per_s = 3
write_gb_per_s = 2
read_latency_us = 10
write_latency_us = 10
lookup_us = 0
"""
AGAIN = {
    "policy": [*GPU, "--tier", "cpu,capacity=500,policy=kvbm-lineage,policy.order=tick"],
    "infinite": [*GPU, "--tier", "cpu"],
    "exclusive": [*GPU, *CPU, "--placement", "exclusive"],
    "spill": [*GPU, *CPU, "--placement", "spill"],
    "spill and keep": ["--tier", "gpu,capacity=50,policy=keep", *CPU, "--placement", "spill", "--order", "head-first"],
    "watermark": [
        *("--tier", "gpu,capacity=100,high=0.9,ratio=0.5,period_s=3,fit=all"),
        *("--tier", "cpu,capacity=501,chunk=4,admission=min-count,admission.n=3,device=s3,device.lookup_us=3"),
    ],
    "shares": [
        *("--tier", "gpu,capacity=1GiB", "--tier", "cpu,capacity=2GiB,scope=host"),
        *("--tier", "dfs,capacity=10%,scope=cluster", "--workers", "4", "--workers-per-host", "2"),
        *("--block-bytes", "7MiB"),
    ],
    "model": [
        *("--tier", "gpu,capacity=1GiB,scope=rank", "--tier", "cpu,capacity=20GiB,device=cpu-pcie5"),
        *("--tp", "2", "--model", "Llama-3.1-8B", "--kv-dtype", "fp8", "--prefill-tokens-per-s", "5000"),
    ],
    "device": ["--tier", "ssd,capacity=100,device=mine", "--devices", "devices.toml", "--block-bytes", "1MiB"],
    "faults": [*GPU, *CPU, "--faults", "faults.toml", "--retries", "2"],
    "timeline": [*GPU, "--timeline", "timeline.parquet", "--timeline-every", "7", "--force"],
    **{f"preset {name}": ["--preset", name, "--block-bytes", "8MiB"] for name in ("lmcache", "lmcache-mp", "opal")},
    "preset hicache": ["--preset", "hicache", "--tier", "gpu,capacity=100"],
    "preset kvbm": ["--preset", "kvbm", "--tier", "g1,capacity=infinite"],
    "preset vllm": ["--preset", "vllm"],
    "preset vllm without bound": ["--preset", "vllm", "--tier", "gpu,capacity=infinite"],
    "preset lmcache without bound": ["--preset", "lmcache", "--tier", "cpu,capacity=infinite", "--block-bytes", "1kB"],
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_printed_configuration_runs_again_to_the_same_result(
    cli: Cli, tmp_path: Path, sample: Path, name: str
) -> None:
    (tmp_path / "devices.toml").write_text(DEVICE)
    (tmp_path / "faults.toml").write_text('[[fault]]\nkind = "get"\ntier = "cpu"\nshare = 0.3\n')
    printed = cli("replay", sample, *AGAIN[name], "--print-config")
    assert printed.code == 0, printed.err
    (tmp_path / "run.toml").write_text(printed.out)
    results = [cli("replay", sample, *AGAIN[name], "--json"), cli("replay", "--config", "run.toml", "--json")]
    assert [run.code for run in results] == [0, 0], results[1].err
    found = [json.loads(run.out) for run in results]
    for result in found:
        del result["wall_clock"]
    assert found[0] == found[1]
    assert cli("replay", "--config", "run.toml", "--print-config").out == printed.out


def test_a_printed_configuration_with_quotas_runs_again(cli: Cli, tmp_path: Path, few: Path) -> None:
    options = ["--tier", "gpu,capacity=3,quotas.x=1,quotas.y=2"]
    (tmp_path / "run.toml").write_text(cli("replay", few, *options, "--print-config").out)
    runs = [cli("replay", few, *options, "--json"), cli("replay", "--config", "run.toml", "--json")]
    assert [run.code for run in runs] == [0, 0], runs[1].err
    assert json.loads(runs[0].out)["summary"] == json.loads(runs[1].out)["summary"]


def test_a_file_of_devices_of_which_no_tier_has_one_is_refused(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "devices.toml").write_text(DEVICE)
    run = cli("replay", sample, "--tier", "ssd,capacity=100,device=nvme-gen4", "--devices", "devices.toml")
    refused(run, "--devices devices.toml has no effect: no tier has a device of it (mine)")


# -- what is shown ---------------------------------------------------------------------------------


def test_the_tables_name_each_tier_its_flags_and_its_cause(cli: Cli, sample: Path) -> None:
    done = cli("replay", sample, "--tier", "gpu", "--tier", "cpu,capacity=64,device=s3", "--tier", "ssd,write=none")
    assert done.code == 0, done.err
    assert "gpu → cpu → ssd (inclusive, walk any)" in done.out
    assert "write-only; faster tiers serve the reuse there is" in done.out
    assert "idle" in done.out


def test_all_presets_are_listed_and_shown(cli: Cli) -> None:
    listed = cli("presets", "--json")
    assert listed.code == 0
    for preset in json.loads(listed.out):
        shown = cli("presets", preset["name"])
        assert shown.code == 0
        assert "where it comes from" in shown.out
    refused(cli("presets", "vlm"), "unknown preset 'vlm'", "did you mean 'vllm'")
