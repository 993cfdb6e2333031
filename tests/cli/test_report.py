"""``kvbench report`` and ``kvbench plot``, end to end; what a browser makes of a page is in ``tests/report``."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Cli

HAS_CHARTS = all(importlib.util.find_spec(name) for name in ("altair", "vl_convert"))
COMPUTE = "fixed,prefill_ms_per_token=0.1,decode_ms=20"
TIERS = ("--tier", "gpu,capacity=300", "--tier", "cpu,capacity=1k", "--workers", "2", "--compute", COMPUTE)

pytestmark = pytest.mark.skipif(not HAS_CHARTS, reason="needs the extra 'report'")


def run(cli: Cli, *arguments: str | Path) -> str:
    done = cli(*arguments)
    assert (done.code, done.err) == (0, ""), done.err
    return done.out


def figures(page: Path) -> dict[str, Any]:
    """What a page holds of its figures."""
    text = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page.read_text(), re.DOTALL)
    assert text is not None
    found: dict[str, Any] = json.loads(text[1])
    return found


def test_the_files_of_one_run_are_one_run(cli: Cli, sample: Path, tmp_path: Path) -> None:
    """With the document there are the links that no row has, with the rows what changes along the trace, and with the
    timeline what changes over time."""
    files = ("-o", "run.parquet", "--timeline", "timeline.parquet")
    (tmp_path / "run.json").write_text(run(cli, "replay", sample, *TIERS, *files, "--json"))
    parts = {"run.json": {"bounds", "misses"}, "run.parquet": {"latency", "ttft-parts", "hits-along"}}
    for name, wanted in parts.items():
        run(cli, "report", name, "-o", f"{name}.html")
        assert set(figures(tmp_path / f"{name}.html")) >= wanted
    run(cli, "report", "run.json", "run.parquet", "timeline.parquet", "-o", "all.html")
    found = figures(tmp_path / "all.html")
    assert set(found) >= {*parts["run.json"], *parts["run.parquet"], "tiers", "workers", "occupancy", "in-flight"}

    summary = json.loads((tmp_path / "run.json").read_text())["summary"]
    shares = dict(zip(("gpu", "cpu", "missed"), (row[-1] for row in found["tiers"]["rows"]), strict=True))
    assert shares["gpu"] == summary["tiers"][0]["hit_blocks"] / summary["blocks"]["asked"]
    assert sum(shares.values()) == pytest.approx(1)
    rows = pq.read_table(tmp_path / "run.parquet").to_pylist()
    parts_at = [found["ttft-parts"]["columns"].index(name) for name in ("milliseconds", "count")]
    drawn = sum(row[parts_at[0]] * row[parts_at[1]] for row in found["ttft-parts"]["rows"])
    assert drawn == pytest.approx(sum(row["ttft_ns"] for row in rows) / 1e6)


def test_the_same_files_make_the_same_page_and_none_says_where_they_are(cli: Cli, sample: Path, tmp_path: Path) -> None:
    run(cli, "replay", sample, "--capacity", "1k", "-o", "run.parquet")
    for name in ("a.html", "b.html"):
        run(cli, "report", tmp_path / "run.parquet", "-o", name)
    page = (tmp_path / "a.html").read_text()
    assert page == (tmp_path / "b.html").read_text()
    assert str(tmp_path) not in page
    addresses = re.findall(r"https?://[^\s\"'`)\\<]+", page)
    assert {address.split("/")[2] for address in addresses} <= {"www.w3.org", "vega.github.io"}
    assert not re.search(r"(src|href)=[\"']?https?:", page)


def test_a_curve_and_replays_share_one_chart_with_bounds_and_knee(cli: Cli, sample: Path, tmp_path: Path) -> None:
    run(cli, "curve", sample, "--block-bytes", "2MiB", "-o", "curve.parquet")
    cells = ("--capacity", "100,1k", "--policy", "lru", "--policy", "arc", "--block-bytes", "2MiB")
    (tmp_path / "matrix.json").write_text(run(cli, "replay", sample, *cells, "--json"))
    run(cli, "report", "curve.parquet", "matrix.json", "-o", "page.html")
    found = figures(tmp_path / "page.html")
    columns, rows = found["hit-rate"]["columns"], found["hit-rate"]["rows"]
    lines = {name: [row for row in rows if row[columns.index("cache")] == name] for name in ("arc", "OPT (Belady)")}
    document = json.loads((tmp_path / "matrix.json").read_text())["cells"]
    assert columns[0] == "capacity_gib"
    assert [row[0] for row in lines["arc"]] == [100 * 2 / 1024, 1000 * 2 / 1024]
    assert [row[2] for row in lines["arc"]] == [cell["rates"]["token"] for cell in document if cell["policy"] == "arc"]
    assert {row[2] for row in lines["OPT (Belady)"]} == {cell["belady_rates"]["token"] for cell in document}
    curve = pq.read_table(tmp_path / "curve.parquet")
    exact = dict(zip(curve["capacity_blocks"].to_pylist(), curve["token_rate"].to_pylist(), strict=True))
    drawn = [row for row in rows if row[1] == "LRU (exact curve)"]
    assert len(drawn) > 50
    assert all(exact[round(row[0] * 512)] == row[2] for row in drawn)
    assert "knee: 3.41 GiB" in json.dumps(found["hit-rate"]["spec"])
    gaps = [row[-1] for row in found["gap"]["rows"]]
    assert sorted(gaps) == sorted(cell["belady_rates"]["token"] - cell["rates"]["token"] for cell in document)


def test_a_sweep_shows_means_over_seeds_and_what_failed(cli: Cli, sample: Path, tmp_path: Path) -> None:
    settings = ("--capacity", "300,0", "--router", "random", "--router", "dynamo-kv", "--workers", "2")
    done = cli("sweep", sample, *settings, "--compute", COMPUTE, "--vary", "seed=0,1,2", "-o", "sweep.parquet")
    assert done.code == 1
    run(cli, "report", "sweep.parquet", "-o", "page.html")
    front = figures(tmp_path / "page.html")["pareto"]
    points = {row[0]: dict(zip(front["columns"], row, strict=True)) for row in front["rows"]}
    table = pq.read_table(tmp_path / "sweep.parquet").to_pylist()
    for router in ("random", "dynamo-kv"):
        cells = [row for row in table if row["router"] == router and row["status"] == "done"]
        assert len(cells) == 3
        mean = sum(row["timed_ttft_ns_p99"] for row in cells) / 3e6
        assert points[router]["ttft_p99_ms"] == pytest.approx(mean)
        assert points[router]["ttft_p99_ms_low"] <= mean <= points[router]["ttft_p99_ms_high"]
    page = (tmp_path / "page.html").read_text()
    assert "Failed cells of sweep.parquet: 6 of 12" in page
    assert "a tier holds at least one block" in page


def test_the_files_of_how_much_dram_are_one_chart_of_lru_opt_infinite_and_the_knee(
    cli: Cli, sample: Path, tmp_path: Path
) -> None:
    size = ("--block-bytes", "2MiB")
    run(cli, "curve", sample, *size, "-o", "curve.parquet")
    run(cli, "report", "curve.parquet", "-o", "curve.html")
    assert "The line of OPT (Belady) is missing" in (tmp_path / "curve.html").read_text()
    run(cli, "answer", "dram", sample, *size, "-o", "dram")
    run(cli, "report", "curve.parquet", "dram/sweep.parquet", "-o", "page.html")
    assert "OPT (Belady) is missing" not in (tmp_path / "page.html").read_text()
    chart = figures(tmp_path / "page.html")["hit-rate"]
    assert {row[1] for row in chart["rows"]} == {"LRU (exact curve)", "OPT (Belady)", "infinite cache"}
    answered = pq.read_table(tmp_path / "dram" / "capacities.parquet").to_pylist()
    bound = {row["host_bytes"] / 2**30: row["belady_token_rate"] for row in answered}
    assert {row[0]: row[2] for row in chart["rows"] if row[1] == "OPT (Belady)"} == pytest.approx(bound)
    assert "knee: 3.41 GiB" in json.dumps(chart["spec"])


def test_sweeps_of_different_axes_have_sections_of_their_own_and_parts_of_one_are_joined(
    cli: Cli, sample: Path, tmp_path: Path
) -> None:
    policies = ("--policy", "lru", "--policy", "arc", "--belady", "on")
    for name, capacities in (("small", "100,300"), ("large", "300,1k")):
        run(cli, "sweep", sample, *policies, "--capacity", capacities, "-o", f"{name}.parquet")
    routers = ("--router", "random", "--router", "max-prefix", "--capacity", "700", "--workers", "2")
    run(cli, "sweep", sample, *routers, "-o", "routers.parquet")
    run(cli, "report", "small.parquet", "routers.parquet", "large.parquet", "-o", "page.html")
    page, found = (tmp_path / "page.html").read_text(), figures(tmp_path / "page.html")
    for name in ("small.parquet, large.parquet", "routers.parquet"):
        assert f"Configurations side by side: {name}" in page
    assert [row[:2] for row in found["matrix"]["rows"]] == [
        [p, c] for p in ("lru", "arc") for c in ("100", "300", "1,000")
    ]
    assert {row[0] for row in found["hit-rate"]["rows"]} == {100, 300, 1000}
    assert {row[0] for row in found["set2-load"]["rows"]} == {"random", "max-prefix"}


def test_plot_lists_figures_and_draws_one_with_its_rows(cli: Cli, sample: Path, tmp_path: Path) -> None:
    run(cli, "replay", sample, "--capacity", "1k", "-o", "run.parquet")
    assert re.search(r"^misses +\d+ +Misses by reason$", run(cli, "plot", "run.parquet"), re.MULTILINE)
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<svg"), ("a.html", b"<!DOCTYPE html>")):
        assert f"wrote {name}" in run(cli, "plot", "run.parquet", "--figure", "misses", "-o", name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "Misses by reason" in (tmp_path / "a.svg").read_text()
    run(cli, "plot", "run.parquet", "--figure", "misses", "--data", "rows.parquet")
    columns = pq.read_table(tmp_path / "run.parquet")
    rows = {row["reason"]: row["miss_blocks"] for row in pq.read_table(tmp_path / "rows.parquet").to_pylist()}
    assert rows["evicted"] == sum(columns["miss_evicted_blocks"].to_pylist())


def test_what_cannot_be_shown_is_refused_with_what_to_do(cli: Cli, sample: Path, tmp_path: Path) -> None:
    outputs = ("-o", "run.parquet", "--timeline", "timeline.parquet", "--events", "events.parquet")
    run(cli, "replay", sample, *TIERS[:4], *outputs)
    (tmp_path / "text.txt").write_text("nothing")
    for arguments, message in (
        (("report", "run.parquet", "-o", "page.pdf"), "page.pdf: a report is a page"),
        (("report", "run.parquet", "-o", "run.parquet.html", "events.parquet"), "events.parquet has nothing"),
        (("report", "timeline.parquet", "-o", "page.html"), "a run that is not among the files"),
        (("report", "text.txt", "-o", "page.html"), "text.txt is neither a Parquet file nor JSON"),
        (("report", "none.parquet", "-o", "page.html"), "none.parquet cannot be read"),
        (("plot", "run.parquet", "--figure", "moon", "-o", "a.png"), "there are bounds, misses"),
        (("plot", "run.parquet", "--figure", "misses"), "--figure needs -o"),
        (("plot", "run.parquet", "-o", "a.png"), "--output has no effect without --figure"),
        (("plot", "run.parquet", "--figure", "misses", "-o", "a.gif"), "must end in .html, .svg, .png"),
    ):
        done = cli(*arguments)
        assert (done.code, done.out) == (2, ""), arguments
        assert message in done.err, (arguments, done.err)
        assert done.err.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))
    run(cli, "report", "run.parquet", "-o", "page.html")
    assert "page.html exists; give --force" in cli("report", "run.parquet", "-o", "page.html").err
    run(cli, "report", "run.parquet", "-o", "page.html", "--force")


def test_a_trace_without_requests_and_a_run_under_seeds_have_reports_of_their_own(
    cli: Cli, sample: Path, tmp_path: Path
) -> None:
    with pa.ipc.open_file(sample) as source:
        table = source.read_all().slice(0, 0)
    with pa.OSFile(str(tmp_path / "empty.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    run(cli, "replay", "empty.arrow", *TIERS, "-o", "empty.parquet", "--timeline", "timeline.parquet")
    run(cli, "report", "empty.parquet", "timeline.parquet", "-o", "empty.html")
    assert "NaN" not in (tmp_path / "empty.html").read_text().split("<script>")[0]

    seeds = ("--capacity", "1k", "--workers", "2", "--router", "random", "--compute", COMPUTE, "--seeds", "2", "--json")
    (tmp_path / "seeds.json").write_text(run(cli, "replay", sample, *seeds))
    run(cli, "report", "seeds.json", "-o", "seeds.html")
    rate = json.loads((tmp_path / "seeds.json").read_text())["figures"]["rates.token"]
    interval = f"{100 * rate['low']:.2f} % to {100 * rate['high']:.2f} %"
    assert interval in (tmp_path / "seeds.html").read_text()
