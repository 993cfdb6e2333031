"""``kvbench compare``, end to end."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import kvbench
from tests.cli.conftest import Cli
from tests.results.test_compare import CHAT, TIMED, planted

HAS_CHARTS = all(importlib.util.find_spec(name) for name in ("altair", "vl_convert"))
COMPUTE = "fixed,prefill_ms_per_token=0.1,decode_ms=20"


def replay(cli: Cli, sample: Path, name: str, *options: str) -> str:
    """The document of a replay whose requests are in ``name``."""
    run = cli("replay", sample, "--json", "-o", name, *options)
    assert (run.code, run.err) == (0, "")
    return run.out


def test_a_broken_limit_is_exit_code_3_and_the_table_says_where(cli: Cli, sample: Path, tmp_path: Path) -> None:
    replay(cli, sample, "a.parquet", "--capacity", "1k", "--workers", "2")
    replay(cli, sample, "b.parquet", "--capacity", "900", "--workers", "2")
    run = cli("compare", "a.parquet", "b.parquet", "--fail-if", "token_rate:-0.1%", "-o", "figures.csv")
    assert (run.code, run.err) == (3, "")
    for part in ("capacity", "token rate", "worker 0: hit tokens", "misses: evicted", "the first is number"):
        assert part in run.out, part
    assert "failed: b.parquet breaks token_rate:-0.1%: rates.token -" in run.out
    assert cli("compare", "a.parquet", "b.parquet", "--fail-if", "token_rate:-50%").code == 0
    with (tmp_path / "figures.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["figure"] == "rates.token"]
    assert [row["run"] for row in rows] == ["a.parquet", "b.parquet"]
    assert float(rows[1]["share"]) < -0.001


def test_a_planted_regression_of_one_percent_fails_a_limit_and_the_table_says_where(cli: Cli, tmp_path: Path) -> None:
    kvbench.replay(CHAT, output=str(tmp_path / "good.parquet"), **TIMED)
    planted(tmp_path / "good.parquet", tmp_path / "worse.parquet")
    run = cli("compare", "good.parquet", "worse.parquet", "--fail-if", "token_rate:-0.9%", "--fail-if", "ttft_p99:+0%")
    assert (run.code, run.err) == (3, "")
    where = run.out[run.out.index("\nwhere ") : run.out.index("\nworse.parquet: ")]
    assert [line.split("  ")[0] for line in where.splitlines()[2:] if line] == [
        "worker 0: hit tokens",
        "tier cpu: hit blocks",
    ]
    failed = [line for line in run.out.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 1
    assert failed[0].startswith("failed: worse.parquet breaks token_rate:-0.9%: rates.token -")
    assert failed[0].endswith("(-1.00 %)")
    assert cli("compare", "good.parquet", "worse.parquet", "--fail-if", "token_rate:-1.1%").code == 0


def test_equal_runs_are_said_to_be_equal_whatever_form_they_have(cli: Cli, sample: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(replay(cli, sample, "a.parquet", "--capacity", "500"))
    (tmp_path / "b.json").write_text(replay(cli, sample, "b.parquet", "--capacity", "500"))
    assert "b.parquet: equal in all" in cli("compare", "a.parquet", "b.parquet").out
    run = cli("compare", "a.json", "b.json", "b.parquet", "--json", "-o", "figures.parquet")
    assert run.code == 0
    document = json.loads(run.out)
    assert document["equal"]
    assert document["failed"] == []
    assert not any("wall" in name or "replay_s" in name for name in document["figures"])
    table = pq.read_table(tmp_path / "figures.parquet")
    assert set(table["run"].to_pylist()) == {"a.json", "b.json", "b.parquet"}


def test_bad_input_is_one_clear_error(cli: Cli, sample: Path, tmp_path: Path) -> None:
    replay(cli, sample, "a.parquet", "--capacity", "500", "--events", "events.parquet")
    assert cli("trace", "make", "chat,sessions=3", "-o", "other.arrow").code == 0
    replay(cli, tmp_path / "other.arrow", "other.parquet", "--capacity", "500")
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "y.json").write_text("no")
    (tmp_path / "m.csv").write_text("ttft_ms\n1\n")
    (tmp_path / "matrix.json").write_text(cli("replay", sample, "--capacity", "1,2", "--json").out)
    for arguments, message in (
        (("a.parquet", "other.parquet"), "is of another trace than a.parquet"),
        (("a.parquet", "events.parquet"), "is no table of requests"),
        (("a.parquet", "x.json"), "is not the result of a replay"),
        (("a.parquet", "y.json"), "is neither a Parquet file nor JSON"),
        (("a.parquet", "matrix.json"), "has 2 runs"),
        (("a.parquet", "gone.parquet"), "gone.parquet cannot be read"),
        (("a.parquet",), "needs two runs or more"),
        (("a.parquet", "a.parquet", "--fail-if", "token_rat:-1%"), "did you mean token_rate"),
        (("a.parquet", "a.parquet", "--engine", "x"), "--engine has no effect without --measured"),
        (("a.parquet", "a.parquet", "-o", "x.txt"), "must end in .parquet or .csv"),
        (("gone.parquet", "gone.parquet", "-o", "a.parquet"), "a.parquet exists"),
        (("a.parquet", "a.parquet", "--force"), "--force has no effect without --output"),
        (("gone.parquet", "--measured", "m.csv", "-o", "a.parquet"), "a.parquet exists"),
        (("a.parquet", "a.parquet", "--measured", "m.csv"), "one run"),
        (("a.parquet", "--measured", "m.csv"), "needs the requests of a timed replay"),
        (("a.parquet", "--measured", "m.csv", "--fail-if", "x:-1%"), "--fail-if has no effect with --measured"),
        (("a.parquet", "--measured", "m.csv", "--plot", "x.gif"), "the name must end in"),
    ):
        run = cli("compare", *arguments)
        assert (run.code, run.out) == (2, ""), arguments
        assert message in run.err, arguments
    assert cli("compare", "a.parquet", "other.parquet", "--different-traces").code == 0


def test_a_run_is_compared_with_what_was_measured(cli: Cli, sample: Path, tmp_path: Path) -> None:
    replay(cli, sample, "a.parquet", "--capacity", "2k", "--compute", COMPUTE)
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    ttfts = [1.25 * row["ttft_ns"] / 1e9 for row in rows]
    (tmp_path / "bench.json").write_text(json.dumps({"ttfts": ttfts}))
    run = cli("compare", "a.parquet", "--measured", "bench.json", "--engine", "vLLM 0.33.0", "-o", "pairs.parquet")
    assert (run.code, run.err) == (0, "")
    assert "a.parquet beside bench.json (vLLM bench serve) of vLLM 0.33.0" in run.out
    assert "compute model fixed" in run.out
    assert "20.00 %   -20.00 %   -20.00 %   -20.00 %   -20.00 %     1.000      1.000" in run.out
    assert pq.read_table(tmp_path / "pairs.parquet").num_rows == len(rows)
    document = json.loads(cli("compare", "a.parquet", "--measured", "bench.json", "--json").out)
    assert document["accuracy"]["ttft"]["mape"] == pytest.approx(0.2)
    assert document["matched_by"] == "order in the file"


@pytest.mark.skipif(not HAS_CHARTS, reason="needs the extra 'report'")
def test_the_scatter_is_drawn(cli: Cli, tmp_path: Path) -> None:
    assert cli("trace", "make", "chat,sessions=3", "-o", "small.arrow").code == 0
    replay(cli, tmp_path / "small.arrow", "a.parquet", "--capacity", "2k", "--compute", COMPUTE)
    run = cli("compare", "a.parquet", "--measured", "a.parquet", "--plot", "scatter.svg")
    assert run.code == 0
    assert "wrote scatter.svg" in run.out
    drawing = (tmp_path / "scatter.svg").read_text()
    assert drawing.startswith("<svg")
    assert all(text in drawing for text in ("measured TTFT (ms)", "predicted E2E (ms)", "TPOT: MAPE 0.0 %"))
