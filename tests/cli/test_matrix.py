"""Several policies and capacities in one command."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

import kvbench

if TYPE_CHECKING:
    from conftest import Cli

POLICIES = ["--policy", "lru", "--policy", "fifo"]


def test_cells_are_the_replays_they_stand_for(cli: Cli, sample: Path) -> None:
    document = json.loads(cli("replay", sample, *POLICIES, "--capacity", "100,10%", "--json").out)
    assert [(cell["policy"], cell["capacity"]) for cell in document["cells"]] == [
        ("lru", "100"),
        ("fifo", "100"),
        ("lru", "10%"),
        ("fifo", "10%"),
    ]
    for cell in document["cells"]:
        alone = kvbench.replay(sample, policy=cell["policy"], capacity=cell["capacity"]).summary
        assert cell["capacity_blocks"] == alone["capacity_blocks"]
        assert cell["evicted_blocks"] == alone["blocks"]["evicted"]
        for rates in ("rates", "belady_rates", "infinite_rates"):
            assert cell[rates] == alone[rates]


def test_table_marks_the_best_of_each_capacity_between_its_bounds(cli: Cli, sample: Path) -> None:
    lines = cli("replay", sample, *POLICIES, "--capacity", "100,1k").out.splitlines()
    assert sum(" * " in line for line in lines[3:]) >= 2
    assert sum("Belady (bound)" in line for line in lines) == 2
    assert sum("infinite (bound)" in line for line in lines) == 2
    assert any("points" in line for line in lines)


def test_output_has_a_row_a_cell(cli: Cli, tmp_path: Path, sample: Path) -> None:
    assert cli("replay", sample, *POLICIES, "--capacity", "100,1k", "-o", "cells.parquet").code == 0
    table = pq.read_table(tmp_path / "cells.parquet")
    assert table["policy"].to_pylist() == ["lru", "fifo"] * 2
    assert table["capacity_blocks"].to_pylist() == [100, 100, 1_000, 1_000]
    rate = kvbench.replay(sample, capacity=100).rates["token"]
    assert table["token_rate"][0].as_py() == rate


def test_run_file_may_list_policies_and_capacities(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "run.toml").write_text('capacity = [100, "1k"]\npolicy = ["lru", {name = "fifo"}]\n')
    printed = cli("replay", sample, "--config", "run.toml", "--print-config")
    assert tomllib.loads(printed.out)["policy"] == [{"name": "lru"}, {"name": "fifo"}]
    (tmp_path / "again.toml").write_text(printed.out)
    first = json.loads(cli("replay", sample, "--config", "run.toml", "--json").out)["cells"]
    assert json.loads(cli("replay", "--config", "again.toml", "--json").out)["cells"] == first


def test_events_of_a_matrix_are_refused(cli: Cli, tmp_path: Path, sample: Path) -> None:
    run = cli("replay", sample, *POLICIES, "--capacity", "100", "--events", "events.parquet")
    assert run.code == 2
    assert "--events" in run.err
    assert list(tmp_path.iterdir()) == []


def test_bad_cell_of_a_matrix_is_named(cli: Cli, sample: Path) -> None:
    assert "lur" in cli("replay", sample, "--policy", "lru", "--policy", "lur", "--capacity", "10").err
    assert "at least one block" in cli("replay", sample, "--capacity", "10,0").err


ROUTERS = ["--router", "max-prefix", "--router", "dynamo-kv@1.4,temperature=0.5"]


def test_routers_stand_side_by_side_as_the_replays_they_stand_for(cli: Cli, tmp_path: Path, sample: Path) -> None:
    command = ["replay", sample, *ROUTERS, "--workers", "4", "--capacity", "100,1k", "-o", "cells.parquet"]
    document = json.loads(cli(*command, "--json").out)
    assert [(cell["router"], cell["capacity"]) for cell in document["cells"]] == [
        ("max-prefix", "100"),
        ("dynamo-kv@1.4,temperature=0.5", "100"),
        ("max-prefix", "1k"),
        ("dynamo-kv@1.4,temperature=0.5", "1k"),
    ]
    for cell in document["cells"]:
        alone = kvbench.replay(sample, router=cell["router"], capacity=cell["capacity"], workers=4).summary
        assert cell["rates"] == alone["rates"]
        for name in ("max_over_mean_requests", "max_over_mean_computed_tokens"):
            assert cell[name] == alone["workers"][name]
        for name in ("routed_away_tokens", "stale_tokens", "unforeseen_tokens"):
            assert cell[name] == alone["routing"][name]
        assert cell["stale_tokens"] == 0
    assert pq.read_table(tmp_path / "cells.parquet")["router"].to_pylist()[:1] == ["max-prefix"]
    text = cli(*command, "--force")
    assert text.code == 0, text.err
    assert sum("infinite (bound)" in line for line in text.out.splitlines()) == 2
    assert "dynamo-kv@1.4,temperature=0.5" in text.out


def test_a_run_file_may_list_routers(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "run.toml").write_text('workers = 3\nrouter = ["random", {name = "llmd", prefix = 1.0}]\n')
    printed = cli("replay", sample, "--config", "run.toml", "--print-config")
    assert [router["name"] for router in tomllib.loads(printed.out)["router"]] == ["random", "llmd"]
    (tmp_path / "again.toml").write_text(printed.out)
    first = json.loads(cli("replay", sample, "--config", "run.toml", "--json").out)["cells"]
    assert json.loads(cli("replay", "--config", "again.toml", "--json").out)["cells"] == first
    one = cli("replay", sample, *ROUTERS)
    assert one.code == 2
    assert "--router has no effect with one worker" in one.err


def test_an_output_that_cannot_be_written_is_told_before_the_replay(cli: Cli, tmp_path: Path, sample: Path) -> None:
    (tmp_path / "mine.parquet").write_text("mine")
    for name, why in (
        ("mine.parquet", "mine.parquet exists; give --force"),
        ("none/cells.parquet", "cannot be written"),
        ("cells.csv", "is written as Parquet; give it a name in .parquet instead of .csv"),
    ):
        run = cli("replay", sample, *POLICIES, "--capacity", "100", "-o", name)
        assert (run.code, run.out) == (2, "")
        assert why in run.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.parquet"]
