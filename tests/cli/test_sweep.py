"""``kvbench sweep`` at the command line."""

import importlib.util
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from kvbench.sweeps.file import read_sweep

HAS_CHARTS = all(importlib.util.find_spec(name) for name in ("altair", "vl_convert"))
ONE = "--executor=local,processes=1"
TIMED = ("--compute", "fixed,prefill_ms_per_token=0.05,decode_ms=5", "--workers", 2, "--slo", "ttft=1s")


def test_a_sweep_prints_a_row_a_cell_and_writes_one_table(cli, sample, tmp_path):
    done = cli(
        "sweep", sample, "--capacity", "1%..100%:3", "--policy", "lru", "--policy", "arc", ONE, "-o", "s.parquet"
    )
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "chat, seed 0 · 6 cells · capacity (3) × policy (2)"
    assert [line.split() for line in lines[2:9]] == [
        ["capacity", "policy", "token", "rate", "method"],
        ["1%", "lru", "24.61", "%", "curve"],
        ["1%", "arc", "30.15", "%", "replay"],
        ["10%", "lru", "71.18", "%", "curve"],
        ["10%", "arc", "69.81", "%", "replay"],
        ["100%", "lru", "86.24", "%", "curve"],
        ["100%", "arc", "86.24", "%", "replay"],
    ]
    assert "curve: 3 cells answered by the exact LRU curve" in done.out
    assert "wrote s.parquet" in done.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.parquet"]
    again = cli(
        "sweep", sample, "--capacity", "1%..100%:3", "--policy", "lru", "--policy", "arc", ONE, "-o", "s.parquet"
    )
    assert "6 cells known from before, and not run again" in again.out


def test_a_file_and_options_make_one_sweep_and_csv_is_written(cli, sample, tmp_path):
    (tmp_path / "sweep.toml").write_text(
        f'trace = "{sample}"\nworkers = 2\n[grid]\ncapacity = [100, 1000]\n[[cell]]\nrouter = "random"\n'
        '[[cell]]\nrouter = "max-prefix"\n'
    )
    done = cli("sweep", "--config", "sweep.toml", "--vary", "capacity=300", "--seeds", 2, ONE, "-o", "s.csv")
    assert done.code == 0
    table = pacsv.read_csv(tmp_path / "s.csv")
    assert table["router"].to_pylist() == ["random", "random", "max-prefix", "max-prefix"]
    assert table["capacity"].to_pylist() == [300] * 4
    assert table["seed"].to_pylist() == [0, 1, 0, 1]


def test_seeds_are_one_row_with_an_interval_and_the_pareto_front_is_marked(cli, sample):
    routers = ("--router", "max-prefix", "--router", "round-robin", "--router", "random")
    options = (*TIMED, "--capacity", "1k", *routers, "--seeds", 3, ONE, "--pareto", "token_rate,-ttft_p99")
    done = cli("sweep", sample, *options)
    assert done.code == 0
    rows = [line for line in done.out.splitlines() if line.startswith(("max-prefix", "round-robin", "random"))]
    assert [row.split()[:2] for row in rows[:1]] == [["max-prefix", "*"]]
    assert rows[2].split()[1] == "3"
    assert all("±" in row for row in rows)
    assert "* front of high token_rate, low ttft_p99" in done.out
    assert "goodput, of those done" in done.out
    document = json.loads(cli("sweep", sample, *options, "--json").out)
    assert document["pareto"][0] == [0, 1, 2]
    assert [cell["axes"]["seed"] for cell in document["cells"]] == [0, 1, 2] * 3
    worst = cli("sweep", sample, *options[:-1], "-token_rate,+ttft_p99")
    assert "* front of low token_rate, high ttft_p99" in worst.out
    assert "max-prefix *" not in worst.out


@pytest.mark.skipif(not HAS_CHARTS, reason="needs the extra 'report'")
def test_J03_one_command_gives_a_grid_a_tidy_table_and_its_front_with_error_bars(cli, sample, tmp_path):
    grid = ("--capacity", "300,1k", "--router", "max-prefix", "--router", "random", "--router", "round-robin")
    front = ("--pareto", "token_rate,ttft_p99", "--plot", "front.html")
    done = cli("sweep", sample, *TIMED, *grid, "--seeds", 3, ONE, "-o", "s.parquet", *front)
    assert (done.code, done.err) == (0, ""), done.err
    assert done.out.endswith("wrote front.html\n")

    table = pq.read_table(tmp_path / "s.parquet").to_pylist()
    asked = [
        (capacity, router, seed)
        for capacity in (300, 1_000)
        for router in ("max-prefix", "random", "round-robin")
        for seed in range(3)
    ]
    assert sorted((row["capacity"], row["router"], row["seed"]) for row in table) == asked

    page = (tmp_path / "front.html").read_text()
    figures = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)[1]
    chart = json.loads(figures)["rates-token-timed-ttft-ms-p99"]
    points = [dict(zip(chart["columns"], row, strict=True)) for row in chart["rows"]]
    means = {}
    for point in points:
        router, _, capacity = point["configuration"].partition(", capacity ")
        seeds = [row for row in table if (row["router"], f"{row['capacity']:,}") == (router, capacity)]
        for key, column, scale in (("rates_token", "rates_token", 1), ("timed_ttft_ms_p99", "timed_ttft_ns_p99", 1e6)):
            values = [row[column] / scale for row in seeds]
            # Student's t of two degrees of freedom at 97.5 %.
            half = 4.302652729911275 * statistics.stdev(values) / 3**0.5
            assert point[key] == pytest.approx(statistics.mean(values))
            assert point[f"{key}_high"] - point[key] == pytest.approx(half, rel=1e-6, abs=1e-12)
            low = max(statistics.mean(values) - half, 0)
            assert point[f"{key}_low"] == pytest.approx(low, rel=1e-6, abs=1e-9)
        means[point["configuration"]] = (-point["rates_token"], point["timed_ttft_ms_p99"])
    assert len(means) == 6
    for point in points:
        rate, tail = means[point["configuration"]]
        beaten = any(a <= rate and b <= tail and (a, b) != (rate, tail) for a, b in means.values())
        assert point["on_front"] != beaten


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--plot", "front.html"], "--plot has no effect without --pareto"),
        (["--pareto", "token_rate,block_rate", "--plot", "front.gif"], "must end in .html, .svg, .png"),
    ],
)
def test_a_front_that_cannot_be_drawn_is_told_before_anything_runs(cli, sample, options, message):
    done = cli("sweep", sample, "--capacity", "9,10", ONE, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_cells_that_fail_are_named_and_the_exit_code_says_so(cli, sample, tmp_path):
    done = cli("sweep", sample, "--capacity", 100, "--vary", "policy=arc,s3-fifo,small=7,sieve", ONE, "-o", "s.parquet")
    assert done.code == 1
    assert done.err.startswith("cell 1 failed: s3-fifo: small = 7")
    assert "1 cell failed" in done.out
    assert [cell.status for cell in read_sweep(tmp_path / "s.parquet").cells] == ["done", "failed", "done"]


def test_only_the_first_failures_are_named_and_only_the_first_rows_are_shown(cli, sample):
    done = cli("sweep", sample, "--policy", "arc", "--capacity", "64GiB", "--vary", "workers=1..45", ONE)
    assert done.code == 1
    assert done.err.count("cell ") == 5
    assert "40 more cells failed" in done.err
    assert "… 5 more rows: give -o FILE or --json" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-"], "standard input cannot be"),
        (["chat.arrow", "--vary", "capcity=1"], "did you mean 'capacity'"),
        (["chat.arrow", "--vary", "policy=arc,lruu", "--capacity", "9"], "unknown eviction policy 'lruu'"),
        (["chat.arrow", "--vary", "policy=lru,arc,smal=0.1", "--capacity", "9"], "unknown parameter 'smal'"),
        (["chat.arrow", "--vary", "workers"], "--vary workers: write a setting and its values"),
        (["chat.arrow", "--vary", "seed=1", "--vary", "seed=2"], "--vary seed is given twice"),
        (["chat.arrow", "--workers", "4", "--vary", "workers=1,2"], "--workers and --vary workers both say"),
        (["chat.arrow", "--stack", "a,capacity=1", "--tier", "a,capacity=1"], "give one of them"),
        (["chat.arrow", "--executor", "locl"], "unknown executor 'locl'; did you mean 'local'"),
        (["chat.arrow", "--executor", "local,processes=-1"], "processes = '-1' is below 0"),
        (["chat.arrow", "--force"], "--force has no effect without --output"),
        (["chat.arrow", "-o", "s.xlsx"], "must end in .parquet or .csv"),
        (["chat.arrow", "--pareto", "token_rat,ttft_p99"], "did you mean token_rate"),
        (["nowhere.arrow", "--pareto", "token_rate"], "at least two figures"),
        (["chat.arrow", "--pareto", "token_rate,blocks.stored"], r"Write +blocks.stored or -blocks.stored"),
        (["gone.arrow"], "gone.arrow: cannot be read"),
        ([], "no trace"),
    ],
)
def test_what_is_wrong_with_all_of_it_is_one_line_before_anything_runs(cli, sample, tmp_path, options, message):
    (tmp_path / "chat.arrow").symlink_to(sample)
    done = cli("sweep", *options)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err
    assert not list(tmp_path.glob("*.parquet*"))


def test_what_the_cells_gave_is_printed_though_pareto_names_no_figure_of_theirs(cli, sample):
    policies = ("--capacity", "9", "--policy", "arc", "--policy", "sieve")
    done = cli("sweep", sample, *policies, ONE, "--pareto", "token_rat,x")
    assert done.code == 2
    assert "sieve" in done.out
    assert "did you mean token_rate" in done.err


def test_an_interrupted_sweep_says_what_it_kept_and_goes_on(sample, tmp_path):
    options = ["--policy=arc", "--policy=sieve", "--capacity=1k", "--vary=seed=0..99", "-o", "s.parquet", ONE]
    command = [sys.executable, "-m", "kvbench", "sweep", str(sample), *options]
    environment = {**os.environ, "KVBENCH_DISABLE_PLUGIN_AUTOLOAD": "1"}
    running = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    journal = tmp_path / "s.parquet.journal"
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 2):
        assert running.poll() is None
        time.sleep(0.002)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert b"kept in s.parquet.journal; the same command goes on from there" in err
    assert b"Traceback" not in err
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert b"cells known from before, and not run again" in done.stdout
    assert not journal.exists()
