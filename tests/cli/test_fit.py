"""``kvbench fit``, end to end."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli

ROWS = "new_tokens,ms\n100,15\n1000,105\n5000,506\n"


def test_a_fit_prints_parameters_residuals_and_how_to_use_them(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(ROWS)
    run = cli("fit", "compute", "steps.csv", "--model", "fixed", "-o", "compute.toml")
    assert (run.code, run.err) == (0, "")
    for part in ("prefill_ms_per_token", "+0.", "new_tokens 5,000", "R² 1.00000", "use it with: --compute fixed,"):
        assert part in run.out, part
    assert run.out.endswith("wrote compute.toml, to be used with: --config compute.toml\n")
    assert (tmp_path / "compute.toml").read_text().startswith('[compute]\nname = "fixed"\n')
    document = json.loads(cli("fit", "compute", "steps.csv", "--model", "fixed", "--json").out)
    assert [row["row"] for row in document["rows"]] == [1, 2, 3]
    assert document["max_error"] < 0.01


def test_nothing_is_written_where_the_fit_fails_or_the_file_is_there(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(ROWS + "7,x\n")
    run = cli("fit", "compute", "steps.csv", "--model", "fixed", "-o", "compute.toml")
    assert (run.code, run.out) == (2, "")
    assert "error: steps.csv, row 4, ms = 'x': must be a number" in run.err
    assert not (tmp_path / "compute.toml").exists()
    (tmp_path / "compute.toml").write_text("mine")  # and that is told before the fit fails
    run = cli("fit", "compute", "steps.csv", "--model", "fixed", "-o", "compute.toml")
    assert (run.code, run.out) == (2, "")
    assert "compute.toml exists; give --force" in run.err
    assert (tmp_path / "compute.toml").read_text() == "mine"
    assert "--force has no effect" in cli("fit", "compute", "steps.csv", "--model", "fixed", "--force").err
    (tmp_path / "steps.csv").write_text(ROWS)
    run = cli("fit", "compute", "steps.csv", "--model", "roofline")
    assert "give roofline,model=NAME" in run.err


def test_a_device_is_fitted_and_columns_renamed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("size,took\n1000000,110\n9000000,910\n")
    columns = ("--column", "bytes=size", "--column", "us=took")
    run = cli("fit", "device", "d.csv", "--device", "nvme-gen4", "--tier", "nvme", *columns)
    assert (run.code, run.err) == (0, "")
    assert "--tier nvme,…,device=nvme-gen4,device.read_gb_per_s=10,device.read_latency_us=10" in run.out
    assert cli("fit", "device", "d.csv", "--device", "nvme-gen4", "--column", "byte=size").code == 2


def test_h_l_the_engine_that_a_model_was_fitted_on_stands_in_every_result(
    cli: Cli, tmp_path: Path, sample: Path
) -> None:
    (tmp_path / "steps.csv").write_text(ROWS)
    fit = ("fit", "compute", "steps.csv", "--model", "fixed,decode_ms=10", "--engine", "vLLM 0.33.0")
    assert cli(*fit, "-o", "compute.toml").code == 0
    run = cli("replay", sample, "--config", "compute.toml", "--capacity", "1k", "-o", "run.parquet", "--json")
    document = json.loads(run.out)
    assert document["config"]["compute"]["fitted_on"] == "vLLM 0.33.0"
    assert document["notes"] == ["the parameters of compute model fixed were fitted to times of vLLM 0.33.0"]
    again = cli("compare", "run.parquet", "--measured", "run.parquet", "--json")
    assert (again.code, "vLLM 0.33.0" in again.out) == (0, True), again.err
    assert cli(*fit[:-1], "vLLM,0.33").code == 2


def test_the_options_that_a_fit_prints_for_its_file_use_it(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "d.csv").write_text("bytes,us\n1000000,110\n9000000,910\n")
    run = cli("fit", "device", "d.csv", "--device", "nvme-gen4", "--tier", "nvme", "-o", "d.toml")
    options = run.out.splitlines()[-1].partition("to be used with: ")[2].replace(",…,", ",capacity=100,").split()
    shown = cli("replay", str(sample), *options, "--block-bytes", "1MiB", "--print-config")
    assert (shown.code, shown.err) == (0, "")
    assert 'device = "nvme-gen4-measured"' in shown.out
