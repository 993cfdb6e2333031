"""``kvbench curve``, end to end."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Cli, Run

HAS_CHARTS = all(importlib.util.find_spec(name) for name in ("altair", "vl_convert"))


def refused(run: Run, *parts: str) -> None:
    assert run.code == 2
    assert run.err.startswith("error: ")
    assert run.err.count("\n") == 1
    for part in parts:
        assert part in run.err, part


def test_curve_prints_rates_knee_and_histograms(cli: Cli, sample: Path) -> None:
    run = cli("curve", sample)
    assert (run.code, run.err) == (0, "")
    for part in ("1,952 requests", "request_mean_token", "knee:", "saturation:", "reuse distance", "reuse time"):
        assert part in run.out, part
    rows = [line for line in run.out.splitlines() if line.startswith(("100 ", "infinite"))]
    assert len(rows) == 2


def test_json_agrees_with_replays_at_the_asked_capacities(cli: Cli, sample: Path) -> None:
    result = json.loads(cli("curve", sample, "--capacity", "100,10%,1GiB", "--block-bytes", "2MiB", "--json").out)
    assert [row["capacity_blocks"] for row in result["curve"]] == [100, 512, 946]
    for row in result["curve"]:
        replayed = json.loads(cli("replay", sample, "--capacity", row["capacity_blocks"], "--json").out)
        for name in ("token", "block", "full_block", "request_any", "block_any"):
            assert row["rates"][name] == replayed["summary"]["rates"][name], name
    assert result["config"]["policy"] == "lru"
    assert "workers" not in result["config"]


def test_a_range_has_ten_steps_a_decade(cli: Cli, sample: Path) -> None:
    rows = json.loads(cli("curve", sample, "--capacity", "10..1k", "--json").out)["curve"]
    assert len(rows) == 21
    assert (rows[0]["capacity_blocks"], rows[10]["capacity_blocks"], rows[-1]["capacity_blocks"]) == (10, 100, 1_000)


def test_the_file_holds_the_whole_curve(cli: Cli, sample: Path, tmp_path: Path) -> None:
    run = cli("curve", sample, "-o", "curve.parquet")
    assert "wrote curve.parquet" in run.out
    table = pq.read_table(tmp_path / "curve.parquet")
    assert table.num_rows > 2_000
    hits = table["hit_tokens"].to_pylist()
    assert hits == sorted(hits)
    again = cli("curve", sample, "-o", "again.parquet")
    assert again.code == 0
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "curve.parquet").read_bytes()


def test_a_sample_says_what_it_is_and_how_sure(cli: Cli, sample: Path) -> None:
    run = cli("curve", sample, "--sample", "0.5", "--sample-depth", "17", "--seed", "2")
    assert (run.code, run.err) == (0, "")
    for part in ("of the trees", "low … high", "jackknife", "sample:"):
        assert part in run.out, part
    rooted = cli("curve", sample, "--sample", "0.9")
    assert "try --sample-by session or --sample-depth 1" in rooted.out


def test_a_stream_will_do(cli: Cli, sample: Path) -> None:
    with pa.memory_map(str(sample)) as source:
        table = pa.ipc.open_file(source).read_all()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    run = cli("curve", "-", "--capacity", "10%", "--json", stdin=sink.getvalue().to_pybytes())
    assert json.loads(run.out)["curve"] == json.loads(cli("curve", sample, "--capacity", "10%", "--json").out)["curve"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--capacity", "0"], ("--capacity = 0", "at least one block")),
        (["--capacity", "ten"], ("ten", "not a number")),
        (["--capacity", "infinite"], ("infinite", "leave it out")),
        (["--capacity", "1k..10"], ("1k..10", "goes down")),
        (["--capacity", "90%..10"], ("goes down", "8,519")),
        (["--capacity", "10.."], ("not a number",)),
        (["--capacity", "1,,2"], ("not a number",)),
        (["--capacity", "5GiB"], ("--block-bytes",)),
        (["--capacity", "0.001%"], ("less than one block",)),
        (["--sample", "2"], ("--sample = 2", "below 1")),
        (["--sample", "0.0001"], ("none of 6 trees", "raise the rate")),
        (["--sample-by", "session"], ("no effect", "--sample")),
        (["--sample-depth", "1"], ("no effect", "--sample")),
        (["--seed", "1"], ("no effect", "--sample")),
        (["--tokens", "chained"], ("block_ids", "chained")),
        (["--block-tokens", "0"], ("--block-tokens",)),
        (["--force"], ("no effect", "--output")),
        (["--plot", "curve.pdf"], ("curve.pdf", ".html, .svg, .png")),
        (["-o", "no/such/folder/out.parquet"], ("no/such/folder",)),
    ],
)
def test_each_bad_setting_is_named_with_its_value(
    cli: Cli, tmp_path: Path, sample: Path, arguments: list[str], parts: tuple[str, ...]
) -> None:
    refused(cli("curve", sample, *arguments), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_without_ids_is_refused(cli: Cli, tmp_path: Path) -> None:
    table = pa.table({"arrival_ns": [0, 1], "input_tokens": pa.array([5, 6], pa.uint32())})
    with pa.OSFile(str(tmp_path / "plain.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    refused(cli("curve", "plain.arrow"), "plain.arrow", "neither block_ids nor token_ids")


def test_existing_files_are_kept_unless_forced(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "curve.parquet").write_text("precious")
    refused(cli("curve", sample, "-o", "curve.parquet"), "curve.parquet", "--force")
    assert (tmp_path / "curve.parquet").read_text() == "precious"
    assert cli("curve", sample, "-o", "curve.parquet", "--force").code == 0


@pytest.mark.skipif(HAS_CHARTS, reason="the extra 'report' is installed")
def test_without_the_extra_one_line_says_what_to_install(cli: Cli, tmp_path: Path, sample: Path) -> None:
    refused(cli("curve", sample, "--plot", "curve.html"), "altair", "kvbench[report]")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not HAS_CHARTS, reason="needs the extra 'report'")
@pytest.mark.parametrize(("name", "start"), [("c.html", b"<!"), ("c.svg", b"<svg"), ("c.png", b"\x89PNG")])
def test_charts_are_whole_files(cli: Cli, tmp_path: Path, sample: Path, name: str, start: bytes) -> None:
    run = cli("curve", sample, "--plot", name)
    assert (run.code, run.err) == (0, "")
    content = (tmp_path / name).read_bytes()
    assert content.lstrip().startswith(start)
    if name.endswith(".html"):
        assert b'<script src="http' not in content


def test_policies_are_replayed_at_the_shown_capacities(cli: Cli, sample: Path) -> None:
    """LRU replayed gives the curve itself; the others stand beside it, under the bound."""
    settings = ["--capacity", "100,1k", "--policy", "lru", "--policy", "arc"]
    document = json.loads(cli("curve", sample, *settings, "--json").out)
    cells = {(cell["policy"], cell["capacity_blocks"]): cell for cell in document["policies"]}
    for row in document["curve"]:
        if row["capacity_blocks"] is not None:
            assert cells["lru", row["capacity_blocks"]]["rates"]["token"] == row["rates"]["token"]
            assert cells["arc", row["capacity_blocks"]]["belady_rates"]["token"] >= row["rates"]["token"]
    assert "Belady (bound)" in cli("curve", sample, *settings).out
    assert cli("curve", sample, *settings, "--sample", "0.5").code == 2
